#include "runtime/engine/device/channel_ends.h"

#include <atomic>
#include <cassert>
#include <string>

#include <tutti/error.hpp>

#include "transport/ring/ring.h"
#include "transport/ring/ring_place.h"

namespace tutti::device {
namespace {

static_assert(sizeof(RingLine) == sizeof(Line) &&
              offsetof(RingLine, header) == offsetof(Line, header) &&
              offsetof(RingLine, payload) == offsetof(Line, payload) && kRingLines == kLines &&
              sizeof(RingLine::payload) == kInlineBytes);
static_assert(sizeof(sync::Atomic<std::uint64_t>) == sizeof(std::uint64_t));

constexpr std::size_t kBlockOfEnds = std::size_t{16} << 10;

}  // namespace

Ends::~Ends() {
  try {
    if (stream_ != nullptr || !pinned_.empty()) {
      const GpuDevice::Current current(gpu_);
      if (stream_ != nullptr) gpu_.driver().synchronize(stream_);
      senders_.clear();
      receivers_.clear();
      if (stream_ != nullptr) gpu_.driver().destroy_stream(stream_);
      for (void* memory : pinned_) settings_.pins.unpin(gpu_.driver(), memory);
    }
  } catch (const Error&) {  // The program has destroyed the context.
  }
  for (const GpuDevice::Block& block : blocks_) gpu_.give_back(GpuDevice::Kind::device, block);
  for (const GpuDevice::Block& block : pinned_blocks_)
    gpu_.give_back(GpuDevice::Kind::pinned, block);
}

// The driver knows the rings of the parent alone, so their ends are not destroyed.
void Ends::forget() noexcept {
  pinned_.clear();
  stream_ = nullptr;
  for (auto& [key, sender] : senders_) static_cast<void>(sender.on_gpu.release());
  for (auto& [key, receiver] : receivers_) static_cast<void>(receiver.on_gpu.release());
}

cuda::Stream Ends::stream() {
  if (stream_ == nullptr) {
    int least = 0, greatest = 0;
    const cuda::KernelDriver& driver = gpu_.driver();
    cuda::check(driver, driver.stream_priorities(&least, &greatest), "the priorities of streams");
    cuda::check(driver, driver.create_stream(&stream_, cuda::kStreamNonBlocking, greatest),
                "a stream of a GPU");
  }
  return stream_;
}

// A ring is one piece of memory that begins with the number of messages released.
void Ends::pin(const RingView& ring) {
  pinned_.reserve(pinned_.size() + 1);
  settings_.pins.pin(gpu_.driver(), ring.released, RingMemory::bytes(ring.data_bytes));
  pinned_.push_back(ring.released);
}

std::byte* Ends::place(std::size_t bytes) {
  assert(bytes <= kBlockOfEnds);
  if (blocks_.empty() || used_ + bytes > blocks_.back().bytes) {
    blocks_.reserve(blocks_.size() + 1);
    blocks_.push_back(gpu_.take(GpuDevice::Kind::device, kBlockOfEnds));
    used_ = 0;
  }
  std::byte* const place = blocks_.back().memory + used_;
  used_ += padded(bytes);
  return place;
}

Ends::Word* Ends::word() {
  if (pinned_blocks_.empty() || pinned_used_ + sizeof(Word) > pinned_blocks_.back().bytes) {
    pinned_blocks_.reserve(pinned_blocks_.size() + 1);
    pinned_blocks_.push_back(gpu_.take(GpuDevice::Kind::pinned, 1));
    pinned_used_ = 0;
  }
  auto* const word = reinterpret_cast<Word*>(pinned_blocks_.back().memory + pinned_used_);
  pinned_used_ += sizeof(Word);
  *word = {};
  return word;
}

void Ends::add_sender(const Program::Port& port) {
  const Key key{port.peer, port.channel};
  if (senders_.contains(key)) return;
  SendRing* const ring = settings_.transport.sender(port.peer, port.channel).ring();
  assert(ring != nullptr);
  Sender sender;
  sender.ring = ring->view();
  pin(sender.ring);
  sender.word = word();
  SendEnd end{};
  end.next = sender.ring.next;
  end.position = sender.ring.position;
  end.freed = sender.ring.freed;
  end.offered = gpu_.address_of(&sender.word->offered);
  end.peer = port.peer;
  sender.end = reinterpret_cast<SendEnd*>(place(sizeof end));
  gpu_.upload(sender.end, &end, sizeof end, stream());
  if (settings_.on_gpus)
    sender.on_gpu = std::make_unique<cuda_ipc::WritingEnd>(
        cuda_ipc::EndContext{gpu_, stream(), &sender.word->result, {port.peer, settings_.rank}},
        sender.ring);
  open_senders_.push_back(key);
  senders_.emplace(key, std::move(sender));
}

void Ends::add_receiver(const Program::Port& port) {
  const Key key{port.peer, port.channel};
  if (receivers_.contains(key)) return;
  Receiver receiver;
  receiver.channel = &settings_.transport.receiver(port.peer, port.channel);
  receiver.word = word();
  RecvEnd end{};
  end.offered = gpu_.address_of(&receiver.word->offered);
  end.peer = port.peer;
  receiver.end = reinterpret_cast<RecvEnd*>(place(sizeof end));
  gpu_.upload(receiver.end, &end, sizeof end, stream());
  open_receivers_.push_back(key);
  receivers_.emplace(key, std::move(receiver));
}

void Ends::add(const std::vector<Program::Port>& sends,
               const std::vector<Program::Port>& receives) {
  for (const Program::Port& port : sends) add_sender(port);
  for (const Program::Port& port : receives) add_receiver(port);
  offer_rings();
}

SendEnd* Ends::sender(const Program::Port& port) const {
  return senders_.at({port.peer, port.channel}).end;
}
RecvEnd* Ends::receiver(const Program::Port& port) const {
  return receivers_.at({port.peer, port.channel}).end;
}

template <typename End>
bool Ends::offer(int peer, const char* direction, Word& word, const RingView& ring, End* on_gpu) {
  const cuda_ipc::Decision decision = on_gpu == nullptr ? cuda_ipc::Decision::host : on_gpu->step();
  if (decision == cuda_ipc::Decision::open) return false;
  OfferedRing& offered = word.offered;
  offered.released = reinterpret_cast<std::uint64_t*>(gpu_.address_of(ring.released));
  offered.data_bytes = ring.data_bytes;
  if (decision == cuda_ipc::Decision::gpu) {
    offered.lines = reinterpret_cast<RingLine*>(on_gpu->lines());
    offered.data = on_gpu->data();
  } else {
    offered.lines = reinterpret_cast<RingLine*>(gpu_.address_of(ring.lines));
    offered.data = gpu_.address_of(ring.data);
  }
  std::atomic_ref(offered.there).store(1, std::memory_order_release);
  if (on_gpu != nullptr)
    settings_.log.write(decision == cuda_ipc::Decision::gpu ? LogLevel::debug : LogLevel::warn,
                        "messages {} rank {} go through {}{}{}", direction, peer,
                        decision == cuda_ipc::Decision::gpu ? "the receiving GPU's memory"
                                                            : "the host's memory, not a GPU's",
                        on_gpu->why().empty() ? "" : ": ", on_gpu->why());
  return true;
}

bool Ends::offer(int peer, Sender& sender) {
  return offer(peer, "to", *sender.word, sender.ring, sender.on_gpu.get());
}

bool Ends::offer(int peer, Receiver& receiver) {
  RecvRing* const ring = receiver.channel->ring();
  if (ring == nullptr) return false;
  const RingView view = ring->view();
  if (!receiver.pinned) {
    pin(view);
    receiver.pinned = true;
    if (settings_.on_gpus)
      receiver.on_gpu = std::make_unique<cuda_ipc::ReadingEnd>(
          cuda_ipc::EndContext{gpu_, stream(), &receiver.word->result, {settings_.rank, peer}},
          view);
  }
  return offer(peer, "from", *receiver.word, view, receiver.on_gpu.get());
}

bool Ends::offer_rings() {
  std::erase_if(open_senders_,
                [this](const Key& key) { return offer(key.first, senders_.at(key)); });
  std::erase_if(open_receivers_,
                [this](const Key& key) { return offer(key.first, receivers_.at(key)); });
  return !open_senders_.empty() || !open_receivers_.empty();
}

}  // namespace tutti::device
