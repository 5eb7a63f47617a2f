#include "runtime/staged/staging.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "collectives/schedule/semantics.h"
#include "runtime/call.h"
#include "runtime/communicator_impl.h"

namespace tutti {
namespace {

// The pinned memory has the distance of a GPU's address to a cache line before, so that kernels of
// the host find it as well aligned.
constexpr std::size_t kGateBytes = 64;
constexpr std::size_t kPinnedLine = 64;

struct BufferPart {
  std::uint64_t offset, bytes;
};

// Returns the parts of a buffer that the call reads or writes, in ascending order, where
// neighbours are one.
std::vector<BufferPart> parts_of(const PlannedCall& call, const BlockTable& blocks, Place place,
                                 int rank, int size) {
  const CallSignature& signature = call.key.signature;
  const bool is_root = rank == signature.root;
  const bool input = place == Place::input;
  if (signature.what == Collective::broadcast && is_root != input) return {};
  std::vector<BufferPart> parts;
  if (signature.lengths == 0) {
    const std::size_t bytes = signature.count * element_bytes(signature.type, signature.reduction);
    const BufferSizes sizes = buffer_sizes(signature.what, bytes, is_root, size);
    parts.push_back({0, input ? sizes.input : sizes.output});
  } else {
    const auto n = static_cast<std::size_t>(size);
    const auto own = static_cast<std::size_t>(rank);
    const bool elsewhere = !is_root && ((signature.what == Collective::gather && !input) ||
                                        (signature.what == Collective::scatter && input));
    const bool one = collectives::holds_one_block(signature.what, place);
    assert(blocks.blocks.size() == 2 * n);
    for (std::size_t peer = 0; peer < n && !elsewhere; ++peer) {
      const BlockTable::Block& block = blocks.blocks[input ? peer : n + peer];
      if (!one || peer == own) parts.push_back({block.offset, block.bytes});
    }
  }
  std::erase_if(parts, [](const BufferPart& part) { return part.bytes == 0; });
  std::sort(parts.begin(), parts.end(),
            [](const BufferPart& a, const BufferPart& b) { return a.offset < b.offset; });
  std::vector<BufferPart> joined;
  for (const BufferPart& part : parts) {
    if (!joined.empty() && part.offset <= joined.back().offset + joined.back().bytes)
      joined.back().bytes =
          std::max(joined.back().bytes, part.offset + part.bytes - joined.back().offset);
    else
      joined.push_back(part);
  }
  return joined;
}

}  // namespace

Staging::Staging(const Where& where, PlannedCall& call, const BlockTable& blocks, int rank,
                 int size)
    : driver_(where.driver), pool_(where.pool), engine_(where.engine), stream_(call.stream) {
  const Gpu& gpu = where.gpu;
  DeviceEngine* const engine = engine_;
  const bool gpu_input = gpu.holds(call.input), gpu_output = gpu.holds(call.output);
  on_own_stream_ = engine != nullptr && stream_ == nullptr && !gpu_input && !gpu_output;
  if (on_own_stream_) stream_ = engine->own_stream();
  const bool input = engine == nullptr ? gpu_input : call.input != nullptr && !gpu_input;
  const bool output = engine == nullptr ? gpu_output : call.output != nullptr && !gpu_output;
  const auto ranges_of = [&](Place place, const void* buffer) {
    std::vector<Range> ranges;
    for (const BufferPart& part : parts_of(call, blocks, place, rank, size))
      ranges.push_back({cuda::address_of(buffer) + part.offset,
                        cuda::address_of(buffer) + part.offset + part.bytes});
    return ranges;
  };
  if (input) in_ = ranges_of(Place::input, call.input);
  if (output) out_ = ranges_of(Place::output, call.output);
  anchor_ = gpu_input ? call.input : gpu_output ? call.output : nullptr;
  const StreamContext current = context();
  if (engine != nullptr) {
    engine->gpu().check_own(gpu_input ? call.input : nullptr, call.stream);
    engine->gpu().check_own(gpu_output ? call.output : nullptr, nullptr);
  }
  captured_ = !on_own_stream_ && is_captured();
  device_call_.launched_by_owner = where.kernel_later || captured_;
  // A broadcast has one buffer, of which each rank copies one way.
  const bool one = input && output && call.input == call.output;
  const Range read = extent(one && in_.empty() ? out_ : in_);
  const Range written = extent(one && out_.empty() ? in_ : out_);
  const bool variable = call.key.signature.lengths != 0;
  const std::size_t table_bytes =
      engine != nullptr && variable ? blocks.blocks.size() * sizeof(BlockTable::Block) : 0;
  if (!kernel_on_stream() || table_bytes > 0 || !in_.empty() || !out_.empty())
    place(read, written, table_bytes, current.handle());
  if (table_bytes > 0) std::memcpy(pinned_.memory + kGateBytes, blocks.blocks.data(), table_bytes);
  const auto pinned_of = [&](const void* buffer, const Range& range) -> std::byte* {
    const Area* const area = area_of(reinterpret_cast<const void*>(range.begin));
    if (area == nullptr) return nullptr;
    return reinterpret_cast<std::byte*>(cuda::address_of(area->pinned) + cuda::address_of(buffer) -
                                        area->buffer.begin);  // it may lie before the first block
  };
  if (input) call.input = pinned_of(call.input, read);
  if (output) call.output = pinned_of(call.output, written);
}

Staging::Staging(const Where& where, TransferCall& call)
    : driver_(where.driver), pool_(where.pool), engine_(nullptr), stream_(call.stream) {
  const bool sends = call.direction == Direction::send;
  const Range buffer{cuda::address_of(call.buffer), cuda::address_of(call.buffer) + call.bytes()};
  const bool on_gpu = where.gpu.holds(call.buffer);
  if (on_gpu) anchor_ = call.buffer;
  if (on_gpu && call.bytes() > 0) (sends ? in_ : out_).push_back(buffer);
  gated_ = !sends || !on_gpu;
  const StreamContext current = context();
  captured_ = is_captured();
  if (captured_) call.received = nullptr;  // It may be gone at the first replay.
  place(extent(in_), extent(out_), 0, current.handle());
  if (!in_.empty() || !out_.empty())
    call.buffer = area_of(reinterpret_cast<const void*>(buffer.begin))->pinned;
}

Staging::~Staging() {
  if (pinned_.memory != nullptr) pool_->give_back(pinned_);
}

StreamContext Staging::context() const {
  return engine_ == nullptr ? StreamContext(driver_, stream_, anchor_)
                            : StreamContext(driver_, engine_->gpu().context());
}

Staging::Range Staging::extent(const std::vector<Range>& ranges) {
  if (ranges.empty()) return {};
  return {ranges.front().begin, ranges.back().end};
}

// Buffers that overlap, since the call is in place, overlap in the same way in pinned memory.
void Staging::place(Range input, Range output, std::size_t table_bytes, cuda::Context context) {
  const bool overlap = input.begin < output.end && output.begin < input.end;
  if (overlap) {
    areas_[0].buffer = {std::min(input.begin, output.begin), std::max(input.end, output.end)};
  } else {
    areas_[0].buffer = input;
    areas_[1].buffer = output;
  }
  std::size_t bytes = kGateBytes + table_bytes;
  const auto room = [](const Area& area) {
    return area.buffer.end - area.buffer.begin + 2 * kPinnedLine;
  };
  for (const Area& area : areas_) bytes += room(area);
  pinned_ = pool_->take(bytes, context);
  set_gate(captured_ ? 1 : 0);
  ready_.store(captured_, std::memory_order_relaxed);
  std::byte* next = pinned_.memory + kGateBytes;
  if (table_bytes > 0) device_call_.table = reinterpret_cast<const BlockTable::Block*>(next);
  next += table_bytes;
  for (Area& area : areas_) {
    const std::size_t past_line = cuda::address_of(next) % kPinnedLine;
    area.pinned = next + (kPinnedLine - past_line) % kPinnedLine + area.buffer.begin % kPinnedLine;
    next += room(area);
  }
}

const Staging::Area* Staging::area_of(const void* address) const {
  const std::uintptr_t number = cuda::address_of(address);
  for (const Area& area : areas_)
    if (number >= area.buffer.begin && number < area.buffer.end) return &area;
  return nullptr;
}

bool Staging::is_captured() const {
  int status = 0;
  cuda::check(driver_, driver_.stream_capturing(stream_, &status), "CallOptions::stream");
  return status != 0;
}

Staging::Pair Staging::pair_of(const Range& range) const {
  const Area* const area = area_of(reinterpret_cast<const void*>(range.begin));
  assert(area != nullptr && range.end <= area->buffer.end);
  return {range.begin, cuda::address_of(area->pinned) + (range.begin - area->buffer.begin),
          range.end - range.begin};
}

// Gives the stream the copies between a GPU's buffer and pinned memory.
bool Staging::copy_all(const std::vector<Range>& ranges, bool in) const {
  return std::all_of(ranges.begin(), ranges.end(), [&](const Range& range) {
    const Pair pair = pair_of(range);
    return driver_.copy(in ? pair.pinned : pair.buffer, in ? pair.buffer : pair.pinned, pair.bytes,
                        stream_) == cuda::kSuccess;
  });
}

// Copies between a buffer of the host and pinned memory, in a function that the stream calls: the
// driver itself would let the calling thread wait for such a copy.
void Staging::copy_here(const std::vector<Range>& ranges, bool in) const noexcept {
  for (const Range& range : ranges) {
    const Pair pair = pair_of(range);
    std::memcpy(reinterpret_cast<void*>(in ? pair.pinned : pair.buffer),
                reinterpret_cast<const void*>(in ? pair.buffer : pair.pinned), pair.bytes);
  }
}

// The function holds a reference to the operation until it has run.
bool Staging::signal(Operation& operation, cuda::HostFunction function) const {
  operation.hold();
  const bool launched = driver_.launch_host(stream_, function, &operation) == cuda::kSuccess;
  if (!launched) operation.let_go();
  return launched;
}

void Staging::copy_in(Operation& operation, bool apart) {
  const StreamContext current = context();
  const bool given = kernel_on_stream() ? in_.empty() || signal(operation, read_host_buffers)
                                        : (engine_ != nullptr || copy_all(in_, true)) &&
                                              signal(operation, signal_ready);
  if (!given)
    throw Error(ErrorKind::unavailable, "the CUDA driver refuses a copy from a call's buffer");
  if (!kernel_on_stream()) return;
  const PlannedCall& call = operation.call;
  const CallExtras extras = call.extras();
  engine_->launch(device_call_, *call.program, buffers_of(call, extras, &operation.blocks()),
                  stream_, apart);
  ready_.store(true, std::memory_order_seq_cst);
}

void Staging::copy_out(Operation& operation) {
  const StreamContext current = context();
  if (!gated_) return leave(operation);
  if (kernel_on_stream()) {
    engine_->gate(device_call_, stream_);
    if (in_.empty() && out_.empty()) return leave(operation);
  } else {
    await_gate();
  }
  if ((engine_ == nullptr && !copy_all(out_, false)) || !signal(operation, signal_left))
    throw Error(ErrorKind::unavailable, "the CUDA driver refuses a copy to a call's buffer");
}

void Staging::await_gate() const {
  if (driver_.wait_value(stream_, cuda::address_of(pinned_.memory), 1, cuda::kWaitUntilAtLeast) !=
      cuda::kSuccess)
    throw Error(ErrorKind::unavailable, "the CUDA driver refuses a wait for the end of a call");
}

// Where a send does not hold up its stream, its next replay waits before it copies.
void Staging::capture_in(Operation& operation, Captures& captures) {
  const StreamContext current = context();
  captures.keep(driver_, stream_, operation);
  if (!gated_) await_gate();
  if (engine_ == nullptr && !copy_all(in_, true))
    throw Error(ErrorKind::unavailable, "the CUDA driver captures no copy from a call's buffer");
  captures.add_start(driver_, stream_, start_replay, operation);
}

void Staging::capture_out(Operation& operation) {
  const StreamContext current = context();
  if (gated_) await_gate();
  const bool given = engine_ == nullptr
                         ? copy_all(out_, false)
                         : out_.empty() || driver_.launch_host(stream_, write_host_buffers,
                                                               &operation) == cuda::kSuccess;
  if (!given)
    throw Error(ErrorKind::unavailable, "the CUDA driver captures no copy to a call's buffer");
  whole_.store(true, std::memory_order_seq_cst);
}

// The communicator has failed, so that no stream waits for the end of one of its calls.
void Staging::abandon(const Error& error) noexcept {
  abandoned_ = error;
  if (!kernel_on_stream()) set_gate(1);
  ready_.store(true, std::memory_order_seq_cst);
  if (!kernel_on_stream() || !in_.empty() || !out_.empty()) {
    try {
      const StreamContext current = context();
      driver_.synchronize(stream_);  // If it fails, so does everything in this context.
    } catch (const Error&) {
    }
  }
  left_.store(true, std::memory_order_seq_cst);
}

void Staging::set_gate(std::uint32_t value) noexcept {
  auto& gate = *reinterpret_cast<std::uint32_t*>(pinned_.memory);
  std::atomic_ref(gate).store(value, std::memory_order_release);
}

void Staging::release(std::optional<Error> error) noexcept {
  error_ = std::move(error);
  if (!kernel_on_stream()) set_gate(1);
}

void Staging::end_replay() noexcept {
  started_.store(false, std::memory_order_seq_cst);
  set_gate(1);
}

void Staging::read_host_buffers(void* operation) {
  auto& reading = *static_cast<Operation*>(operation);
  reading.staging->copy_here(reading.staging->in_, true);
  reading.let_go();
}

// The engine may begin the operation at once, but the stream passes the last signal only after this
// function has returned.
void Staging::signal_ready(void* operation) {
  auto& ready = *static_cast<Operation*>(operation);
  Staging& staging = *ready.staging;
  if (staging.engine_ != nullptr) staging.copy_here(staging.in_, true);
  {
    const Operation::Waiter waiter(ready);
    staging.ready_.store(true, std::memory_order_seq_cst);
    ready.owner->wake_all();
  }
  ready.let_go();
}

void Staging::signal_left(void* operation) {
  auto& leaving = *static_cast<Operation*>(operation);
  Staging& staging = *leaving.staging;
  if (staging.engine_ != nullptr) staging.copy_here(staging.out_, false);
  staging.leave(leaving);
  leaving.let_go();
}

// A graph has come to the call. The gate is open where nothing is started, so that the stream goes
// on. The graph keeps the operation.
void Staging::start_replay(void* operation) {
  auto& call = *static_cast<Operation*>(operation);
  Staging& staging = *call.staging;
  const Operation::Waiter waiter(call);
  if (!staging.whole_.load(std::memory_order_seq_cst) || !call.owner_lives()) return;
  CommunicatorImpl& owner = *call.owner;
  if (staging.started_.exchange(true, std::memory_order_seq_cst)) {
    owner.queue().fail_overlap();
  } else {
    if (staging.engine_ != nullptr) staging.copy_here(staging.in_, true);
    staging.set_gate(0);
    owner.queue().replay(call);
  }
  owner.wake_all();
}

void Staging::write_host_buffers(void* operation) {
  const Staging& staging = *static_cast<Operation*>(operation)->staging;
  staging.copy_here(staging.out_, false);
}

// Once left_ is set, another thread may end the operation, and destroy its Staging. The caller has
// a reference to the operation.
void Staging::leave(Operation& operation) noexcept {
  const Operation::Waiter waiter(operation);
  left_.store(true, std::memory_order_seq_cst);
  operation.owner->wake_all();
}

}  // namespace tutti
