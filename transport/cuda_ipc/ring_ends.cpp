#include "transport/cuda_ipc/ring_ends.h"

#include <cassert>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "transport/cuda_ipc/pattern.h"
#include "transport/ring/ring_memory.h"

namespace tutti::cuda_ipc {
namespace {

using Reader = GpuPlace::Reader;
using Writer = GpuPlace::Writer;

constexpr std::size_t kLinesBytes = kLines * sizeof(Line);
static_assert(kLinesBytes % 4096 == 0, "payloads start on a page");

constexpr std::chrono::seconds kLongestClaim{1};

constexpr std::size_t ring_bytes(std::size_t data_bytes) { return kLinesBytes + data_bytes; }

std::uint64_t result_of(const EndContext& context) {
  return std::atomic_ref(*context.result).load(std::memory_order_acquire);
}

void launch(const EndContext& context, const char* kernel, std::byte* lines, std::size_t data_bytes,
            std::uint64_t seed) {
  std::atomic_ref(*context.result).store(kPending, std::memory_order_release);
  Pattern pattern{lines, lines + kLinesBytes, data_bytes, seed,
                  context.gpu.address_of(context.result)};
  void* arguments[] = {&pattern};
  const cuda::KernelDriver& driver = context.gpu.driver();
  cuda::check(driver,
              driver.launch(context.gpu.kernel(kernel), 1, 1, 1, kPatternThreads, 1, 1, 0,
                            context.stream, arguments, nullptr),
              "the launch of a kernel");
}

}  // namespace

ReadingEnd::ReadingEnd(const EndContext& context, const RingView& ring)
    : context_(context), place_(*ring.gpu), data_bytes_(ring.data_bytes) {
  if (ring.next != 0)
    stay_on_host(Reader::none, "the ring is in use");
  else
    offer();
}

// The lines are zero before the writer sees them.
void ReadingEnd::offer() {
  try {
    piece_ = GpuExports::of_process().take(context_.gpu, ring_bytes(data_bytes_), context_.ends);
    const std::vector<std::byte> zeros(kLinesBytes);
    const std::uint64_t word = 0;
    context_.gpu.upload(piece_.memory, zeros.data(), kLinesBytes, context_.stream);
    context_.gpu.upload(piece_.memory + piece_.bytes, &word, sizeof word, context_.stream);
  } catch (const Error& error) {
    stay_on_host(Reader::none, error.what());
    return;
  }
  place_.offer = {piece_.number, piece_.offset, piece_.handle};
  place_.reader.store(Reader::offered, std::memory_order_release);
}

std::byte* ReadingEnd::data() const noexcept { return piece_.memory + kLinesBytes; }

Decision ReadingEnd::stay_on_host(Reader said, std::string why) {
  place_.reader.store(said, std::memory_order_release);
  why_ = std::move(why);
  return decision_ = Decision::host;
}

Decision ReadingEnd::step() {
  if (decision_ != Decision::open) return decision_;
  switch (place_.writer.load(std::memory_order_acquire)) {
    case Writer::refused: return stay_on_host(Reader::none, "the sender's GPU cannot reach it");
    case Writer::mapped:
    case Writer::wrote: return check();
    default: return decision_;
  }
}

Decision ReadingEnd::check() {
  const std::uint64_t result = looking_ ? result_of(context_) : std::uint64_t{kNotSeen};
  switch (result) {
    case kPending: return decision_;
    case kRight:
      place_.reader.store(Reader::good, std::memory_order_release);
      return decision_ = Decision::gpu;
    case kWrong: return stay_on_host(Reader::bad, "other bytes arrive than the sender writes");
    default: break;
  }
  if (had_written_) return stay_on_host(Reader::bad, "what the sender writes does not arrive");
  had_written_ = place_.writer.load(std::memory_order_acquire) == Writer::wrote;
  try {
    launch(context_, "tutti_pattern_check", lines(), data_bytes_, piece_.number);
  } catch (const Error& error) {
    return stay_on_host(Reader::bad, error.what());
  }
  looking_ = true;
  return decision_;
}

// The writer claims the memory before it looks at the reader's word a last time, and the reader
// writes its word before it looks at the writer's: one of the two sees the other. A writer that has
// claimed it says within a moment whether it could map it.
ReadingEnd::~ReadingEnd() {
  if (piece_.memory == nullptr) return;
  if (decision_ == Decision::open) place_.reader.store(Reader::gone, std::memory_order_seq_cst);
  const auto until = std::chrono::steady_clock::now() + kLongestClaim;
  Writer writer = Writer::silent;
  while ((writer = place_.writer.load(std::memory_order_seq_cst)) == Writer::claimed &&
         std::chrono::steady_clock::now() < until)
    sync::yield();
  using Peer = GpuExports::Peer;
  Peer peer = Peer::may_write;
  if (writer == Writer::silent || writer == Writer::refused) peer = Peer::never_mapped;
  if (writer == Writer::closed) peer = Peer::closed;
  GpuExports::of_process().give_back(piece_, peer);
}

WritingEnd::WritingEnd(const EndContext& context, const RingView& ring)
    : context_(context), place_(*ring.gpu), data_bytes_(ring.data_bytes), fresh_(ring.next == 0) {}

std::byte* WritingEnd::data() const noexcept { return memory_ + kLinesBytes; }

Decision WritingEnd::stay_on_host(std::string why) {
  close();
  why_ = std::move(why);
  return decision_ = Decision::host;
}

Decision WritingEnd::step() {
  if (decision_ != Decision::open) return decision_;
  const Reader reader = place_.reader.load(std::memory_order_acquire);
  if (reader == Reader::none) return stay_on_host("the receiver has no memory for it on its GPU");
  if (reader == Reader::silent) return decision_;
  if (memory_ == nullptr) map();
  if (decision_ != Decision::open) return decision_;
  if (place_.writer.load(std::memory_order_relaxed) == Writer::mapped &&
      result_of(context_) == kWritten)
    place_.writer.store(Writer::wrote, std::memory_order_release);
  switch (reader) {
    case Reader::good: return decision_ = Decision::gpu;
    case Reader::bad: return stay_on_host("what is written there does not arrive as it is");
    case Reader::gone: return stay_on_host("the receiver has ended");
    default: return decision_;
  }
}

void WritingEnd::map() {
  place_.writer.store(Writer::claimed, std::memory_order_seq_cst);
  if (place_.reader.load(std::memory_order_seq_cst) != Reader::offered) {
    stay_on_host("the receiver has ended");
    return;
  }
  const GpuPlace::Offer offer = place_.offer;
  try {
    if (!fresh_) throw Error(ErrorKind::unavailable, "the ring is in use");
    if (const auto piece = GpuExports::of_process().find(offer.number, context_.ends))
      map_in_process(*piece);
    else
      map_of_process(offer);
    launch(context_, "tutti_pattern_write", memory_, data_bytes_, offer.number);
    place_.writer.store(Writer::mapped, std::memory_order_release);
  } catch (const Error& error) {
    stay_on_host(error.what());
    place_.writer.store(Writer::refused, std::memory_order_release);
  }
}

// A GPU reaches the memory of another GPU of its process once its context has been told.
void WritingEnd::map_in_process(const GpuExports::Piece& piece) {
  if (piece.bytes != ring_bytes(data_bytes_))
    throw Error(ErrorKind::corrupt, "the receiver offers memory of another size");
  const cuda::KernelDriver& driver = context_.gpu.driver();
  if (piece.ordinal != context_.gpu.ordinal()) {
    cuda::Device own = -1, peer = -1;
    cuda::check(driver, driver.device(&own, context_.gpu.ordinal()), "a GPU");
    cuda::check(driver, driver.device(&peer, piece.ordinal), "the GPU of a peer");
    int can = 0;
    cuda::check(driver, driver.can_access_peer(&can, own, peer), "access to the GPU of a peer");
    if (can == 0)
      throw Error(ErrorKind::unavailable,
                  fmt::format("GPU {} has no access to the memory of GPU {}",
                              context_.gpu.ordinal(), piece.ordinal));
    cuda::Context of_peer = nullptr;
    cuda::check(driver, driver.retain_context(&of_peer, peer), "the context of a peer's GPU");
    const cuda::Result result = driver.enable_peer_access(of_peer, 0);
    driver.release_context(peer);
    if (result != cuda::kPeerAccessAlready)
      cuda::check(driver, result, "access to the GPU of a peer");
  }
  memory_ = piece.memory;
}

// What the peer says is not trusted: the ring has to lie within the allocation that was mapped.
void WritingEnd::map_of_process(const GpuPlace::Offer& offer) {
  const cuda::KernelDriver& driver = context_.gpu.driver();
  cuda::Address mapped = 0;
  cuda::check(driver, driver.map_memory(&mapped, offer.handle, cuda::kIpcPeerAccess),
              "the memory of a peer's GPU");
  imported_ = mapped;
  cuda::Address begin = 0;
  std::size_t bytes = 0;
  cuda::check(driver, driver.allocation_of(&begin, &bytes, mapped), "the memory of a peer's GPU");
  const std::size_t wanted = ring_bytes(data_bytes_) + sizeof(std::uint64_t);
  if (begin != mapped || offer.offset % kRingAlign != 0 || bytes < wanted ||
      offer.offset > bytes - wanted)
    throw Error(ErrorKind::corrupt, "the receiver offers memory of another size");
  memory_ = reinterpret_cast<std::byte*>(mapped + offer.offset);
}

// The writer says behind the ring that it has ended, where the reader's process finds it later, and
// says it to a reader that is still there.
void WritingEnd::close() noexcept {
  const Writer said = place_.writer.load(std::memory_order_relaxed);
  if (memory_ != nullptr) {
    try {
      const std::uint64_t word = GpuExports::kClosed;
      context_.gpu.upload(memory_ + ring_bytes(data_bytes_), &word, sizeof word, context_.stream);
    } catch (const Error&) {  // The context is gone, and with it all that could write.
    }
    memory_ = nullptr;
  }
  if (imported_ != 0) context_.gpu.driver().unmap_memory(std::exchange(imported_, 0));
  if (said != Writer::silent && said != Writer::refused)
    place_.writer.store(Writer::closed, std::memory_order_release);
}

WritingEnd::~WritingEnd() { close(); }

}  // namespace tutti::cuda_ipc
