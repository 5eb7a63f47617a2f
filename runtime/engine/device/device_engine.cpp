#include "runtime/engine/device/device_engine.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>

#include <tutti/error.hpp>

namespace tutti {
namespace {

// The threads of a block: enough to keep a multiprocessor's loads in flight, few enough that
// several lanes share one.
constexpr unsigned kThreads = 256;

// A block that has looked so often for what it waits for ends, after some milliseconds.
constexpr std::uint32_t kPatience = 4096;

static_assert(sizeof(device::Control) + sizeof(std::uint64_t) <= GpuWords::kBytes);

std::uint64_t seen(std::uint64_t& word) noexcept {
  return std::atomic_ref(word).load(std::memory_order_acquire);
}

std::uint64_t pieces_of(const Program& program, const BlockTable* table) {
  if (table == nullptr) return program.pieces;
  std::uint64_t longest = 0;
  for (const BlockTable::Block& block : table->blocks) longest = std::max(longest, block.bytes);
  return std::max<std::uint64_t>(1, (longest + program.piece_bytes - 1) / program.piece_bytes);
}

}  // namespace

DeviceEngine::DeviceEngine(const device::Ends::Settings& settings, Recorder& recorder,
                           std::shared_ptr<GpuDevice> gpu)
    : Engine(settings.transport.own_status_page(), recorder),
      gpu_(std::move(gpu)),
      driver_(gpu_->driver()),
      ends_(*gpu_, settings) {
  const GpuDevice::Current current(*gpu_);
  try {
    words_ = GpuWords::of_process().take(*gpu_);
    control_ = reinterpret_cast<device::Control*>(words_.memory);
    issued_ = words_.reached;
    launches_.store(words_.reached, std::memory_order_relaxed);
    int least = 0, greatest = 0;
    cuda::check(driver_, driver_.stream_priorities(&least, &greatest), "the priorities of streams");
    cuda::check(driver_, driver_.create_stream(&own_, cuda::kStreamNonBlocking, greatest),
                "a stream of a GPU");
    cuda::check(driver_, driver_.create_stream(&again_, cuda::kStreamNonBlocking, greatest),
                "a stream of a GPU");
    awaited_ = gpu_->take(GpuDevice::Kind::pinned, device::kMostBlocks * sizeof(std::int32_t));
    std::fill_n(reinterpret_cast<std::int32_t*>(awaited_.memory), device::kMostBlocks, -1);
    control_on_gpu_ = gpu_->address_of(control_);
    forks_on_gpu_ =
        gpu_->address_of(reinterpret_cast<std::uint64_t*>(words_.memory + sizeof *control_));
    awaited_on_gpu_ = gpu_->address_of(reinterpret_cast<std::int32_t*>(awaited_.memory));
    counts_ = gpu_->take(GpuDevice::Kind::device, sizeof(device::Counts));
    const device::Counts none{};
    gpu_->upload(counts_.memory, &none, sizeof none, again_);
  } catch (...) {  // Nothing has used any of it.
    if (own_ != nullptr) driver_.destroy_stream(own_);
    if (again_ != nullptr) driver_.destroy_stream(again_);
    if (awaited_.memory != nullptr) gpu_->give_back(GpuDevice::Kind::pinned, awaited_);
    if (counts_.memory != nullptr) gpu_->give_back(GpuDevice::Kind::device, counts_);
    if (words_.memory != nullptr) give_back_words();
    throw;
  }
}

// Once stop() has been called, streams may have kernels that come later. They use control_ and
// counts_ alone.
DeviceEngine::~DeviceEngine() {
  if (forked_) {
    ends_.forget();
    return;
  }
  try {
    const GpuDevice::Current current(*gpu_);
    if (!stopped_) await_quiet();  // The last blocks may still count.
    if (own_ != nullptr) driver_.destroy_stream(own_);
    if (again_ != nullptr) driver_.destroy_stream(again_);
  } catch (const Error&) {  // The program has destroyed the context.
    stopped_ = true;
  }
  if (stopped_) {
    GpuDevice::keep_loaded(gpu_);
  } else {
    gpu_->give_back(GpuDevice::Kind::device, counts_);
    give_back_words();
  }
  gpu_->give_back(GpuDevice::Kind::pinned, awaited_);
  for (const GpuDevice::Block& block : scratch_) gpu_->give_back(GpuDevice::Kind::device, block);
}

// All calls are done, so that streams that still wait for one find at the next user's numbers, too,
// that it is.
void DeviceEngine::give_back_words() noexcept {
  words_.reached = std::max(issued_, launches_.load(std::memory_order_relaxed));
  std::atomic_ref(control_->done).store(words_.reached, std::memory_order_release);
  GpuWords::of_process().give_back(*gpu_, words_);
}

std::shared_ptr<BoundProgram> DeviceEngine::bind(std::vector<Program> stripes) {
  assert(!stripes.empty());
  const GpuDevice::Current current(*gpu_);
  auto bound = std::make_shared<device::DeviceProgram>(std::move(stripes), gpu_, ends_, again_);
  scratch(bound->scratch_bytes);
  rings_missing_ = true;
  return bound;
}

std::byte* DeviceEngine::scratch(std::uint64_t bytes) {
  if (bytes == 0) return nullptr;
  if (scratch_.empty() || scratch_.back().bytes < bytes) {
    scratch_.reserve(scratch_.size() + 1);
    scratch_.push_back(gpu_->take(GpuDevice::Kind::device, bytes));
  }
  return scratch_.back().memory;
}

void DeviceEngine::wait_for(const std::uint64_t& word_on_gpu, std::uint64_t value,
                            cuda::Stream stream) const {
  cuda::check(
      driver_,
      driver_.wait_value_64(stream, cuda::address_of(&word_on_gpu), value, cuda::kWaitUntilAtLeast),
      "a wait of a GPU's stream");
}

void DeviceEngine::prepare(DeviceCall& call, BoundProgram& bound, const CallBuffers& buffers) {
  auto& program = static_cast<device::DeviceProgram&>(bound);
  const Program& stripe = program.program;
  const BlockTable* const blocks = stripe.variable ? buffers.blocks : nullptr;
  call.program = &program;
  call.signature = blocks == nullptr ? stripe.call : blocks->call;
  device::CallRecord& record = call.record;
  record = {};
  record.stripes = program.records;
  record.lanes = program.lanes;
  record.blocks = program.blocks;
  record.control = control_on_gpu_;
  record.counts = reinterpret_cast<device::Counts*>(counts_.memory);
  record.awaited = awaited_on_gpu_;
  record.input = buffers.input;
  record.output = buffers.output;
  record.scratch = scratch(program.scratch_bytes);
  record.table = call.table;
  record.pieces = pieces_of(stripe, blocks);
  record.ticket = ++issued_;
  record.run = ++program.runs;
  record.patience = kPatience;
  record.operation = static_cast<std::uint32_t>(issued_ - words_.reached - 1);
  record.fingerprint = blocks == nullptr ? stripe.fingerprint : blocks->fingerprint;
  record.pair_mask = call.signature.lengths == kPairLengths ? ~std::uint32_t{0} : 0;
  if (buffers.extras != nullptr && buffers.extras->premultiplier != nullptr)
    std::memcpy(record.premultiplier, buffers.extras->premultiplier, size_of(stripe.call.type));
}

void DeviceEngine::launch(DeviceCall& call, BoundProgram& bound, const CallBuffers& buffers,
                          cuda::Stream stream, bool apart) {
  prepare(call, bound, buffers);
  cuda::Stream runs_on = stream;
  if (apart) {
    // The streams that fork write one word, each after the one before it.
    if (forked_at_ > 0) wait_for(*forks_on_gpu_, forked_at_, stream);
    forked_at_ = issued_;
    cuda::check(driver_,
                driver_.write_value_64(stream, cuda::address_of(forks_on_gpu_), forked_at_, 0),
                "a signal of a GPU's stream");
    wait_for(*forks_on_gpu_, forked_at_, own_);
    runs_on = own_;
  }
  // One call at a time uses the rings.
  if (seen(control_->done) + 1 < issued_) wait_for(control_on_gpu_->done, issued_ - 1, runs_on);
  start_kernel(call, runs_on);
}

void DeviceEngine::start_kernel(DeviceCall& call, cuda::Stream stream) {
  call.record.launch = launches_.fetch_add(1, std::memory_order_relaxed) + 1;
  void* arguments[] = {&call.record};
  cuda::check(driver_,
              driver_.launch(call.program->kernel, call.record.blocks, 1, 1, kThreads, 1, 1, 0,
                             stream, arguments, nullptr),
              "the launch of a kernel");
}

void DeviceEngine::gate(const DeviceCall& call, cuda::Stream stream) {
  wait_for(control_on_gpu_->done, call.record.ticket, stream);
}

bool DeviceEngine::reached(const DeviceCall& call) const noexcept {
  return seen(control_->entered) == call.record.launch ||
         seen(control_->done) >= call.record.ticket;
}

bool DeviceEngine::start(BoundProgram& bound, CallBuffers& buffers, bool, int attempts) {
  assert(buffers.device != nullptr);
  const bool launches = buffers.device->launched_by_owner;
  std::optional<GpuDevice::Current> current;
  if (launches) {
    current.emplace(*gpu_);
    prepare(*buffers.device, bound, buffers);
  }
  assert(buffers.device->program == &bound);
  under_way_ = buffers.device;
  signature_ = under_way_->signature;
  const std::uint64_t number = enter(StatusPage::entry_of(signature_));
  assert(static_cast<std::uint32_t>(number) == under_way_->record.operation);
  static_cast<void>(number);
  record();
  forget_awaited();
  if (launches) start_kernel(*under_way_, again_);
  return advance(attempts);
}

bool DeviceEngine::advance(int attempts) {
  if (under_way_ == nullptr) return !stopped_;  // A look has found that the call is done.
  for (; attempts > 0; --attempts)
    if (attempt()) {
      recorder_.end();
      return true;
    }
  return false;
}

// Where the launch has ended and the call has not, the call is launched again.
bool DeviceEngine::attempt() {
  assert(under_way_ != nullptr && !stopped_);
  device::CallRecord& record = under_way_->record;
  const bool ended = seen(control_->exited) == record.launch;
  if (seen(control_->done) >= record.ticket) {
    under_way_ = nullptr;
    complete();
    return true;
  }
  throw_if_mismatched();
  if (!ended && !rings_missing_) return false;
  const GpuDevice::Current current(*gpu_);
  rings_missing_ = ends_.offer_rings();
  if (!ended) return false;
  ++record.attempt;
  start_kernel(*under_way_, again_);
  return false;
}

void DeviceEngine::throw_if_mismatched() const {
  if (seen(control_->mismatched) != under_way_->record.ticket) return;
  throw MismatchedMessage{control_->mismatched_peer, control_->expected, control_->found};
}

// Blocks that find what they need before their patience ends leave what an earlier call has
// written.
void DeviceEngine::forget_awaited() noexcept {
  auto* const peers = reinterpret_cast<std::int32_t*>(awaited_.memory);
  for (std::uint32_t block = 0; block < under_way_->record.blocks; ++block)
    std::atomic_ref(peers[block]).store(-1, std::memory_order_release);
}

int DeviceEngine::awaited(int above) const {
  if (under_way_ == nullptr) return -1;
  auto* const peers = reinterpret_cast<std::int32_t*>(awaited_.memory);
  int lowest = -1;
  for (std::uint32_t block = 0; block < under_way_->record.blocks; ++block) {
    const int peer = std::atomic_ref(peers[block]).load(std::memory_order_acquire);
    if (peer > above && (lowest < 0 || peer < lowest)) lowest = peer;
  }
  return lowest;
}

// Blocks that end are counted first: what is read then of those that have begun is not less.
bool DeviceEngine::is_quiet() const {
  const auto read = [this](const std::uint64_t& count) {
    std::uint64_t value = 0;
    cuda::check(
        driver_,
        driver_.copy(cuda::address_of(&value), cuda::address_of(&count), sizeof value, again_),
        "a copy from a GPU");
    cuda::check(driver_, driver_.synchronize(again_), "a copy from a GPU");
    return value;
  };
  const auto& counts = *reinterpret_cast<const device::Counts*>(counts_.memory);
  const std::uint64_t ended = read(counts.ended);
  return read(counts.started) == ended;
}

// Blocks end within a moment, since each of their looks also asks whether they should. If the
// driver fails, so does everything in its context.
void DeviceEngine::await_quiet() noexcept {
  try {
    while (!is_quiet()) std::this_thread::yield();
  } catch (const Error&) {
    stopped_ = true;
  }
}

void DeviceEngine::stop() noexcept {
  if (stopped_) return;
  stopped_ = true;
  std::atomic_ref(control_->aborted).store(1, std::memory_order_seq_cst);
  try {
    const GpuDevice::Current current(*gpu_);
    await_quiet();
  } catch (const Error&) {
  }
  under_way_ = nullptr;
  std::atomic_ref(control_->done)
      .store(std::numeric_limits<std::uint64_t>::max() / 2, std::memory_order_release);
}

}  // namespace tutti
