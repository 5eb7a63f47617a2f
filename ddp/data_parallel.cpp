#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

#include <tutti/ddp.hpp>

#include "ddp/agreement.h"
#include "ddp/digest.h"

namespace tutti::ddp {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::align_val_t kBucketAlignment{kAlignment};
constexpr int kTagOfCopies = 0x64647000;  // of messages of a rank to itself

struct FreeAligned {
  void operator()(std::byte* memory) const noexcept { ::operator delete(memory, kBucketAlignment); }
};
using Memory = std::unique_ptr<std::byte[], FreeAligned>;

Memory zeroed(std::size_t bytes, int rank) {
  auto* const memory =
      static_cast<std::byte*>(::operator new(bytes, kBucketAlignment, std::nothrow));
  if (memory == nullptr)
    throw Error(ErrorKind::unavailable,
                fmt::format("rank {}: no memory for {} B of gradients", rank, bytes));
  std::memset(memory, 0, bytes);
  return Memory(memory);
}

CallOptions with_stream(CallOptions options, const std::optional<GpuGradients>& gpu) {
  if (gpu) options.stream = gpu->stream;
  return options;
}

void check_memory(const std::optional<GpuGradients>& gpu, std::size_t needed, int rank) {
  if (!gpu || (gpu->bytes >= needed && (needed == 0 || gpu->memory != nullptr) &&
               reinterpret_cast<std::uintptr_t>(gpu->memory) % kAlignment == 0))
    return;
  throw Error(
      ErrorKind::usage,
      fmt::format("rank {}: Options::gpu has {} B at {} for gradients of {} B; give as many "
                  "as gradient_bytes() says, at an address that is a multiple of {}",
                  rank, gpu->bytes, gpu->memory, needed, kAlignment));
}

bool can_be_averaged(DataType type) noexcept {
  switch (type) {
    case DataType::f16:
    case DataType::bf16:
    case DataType::f32:
    case DataType::f64:
    case DataType::f8e4m3:
    case DataType::f8e5m2:
    case DataType::complex64:
    case DataType::complex128: return true;
    default: return false;  // the average of integers is not an integer
  }
}

std::vector<Parameter> checked(std::vector<Parameter> parameters, int rank) {
  std::unordered_map<std::string_view, std::size_t> seen;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    const auto fail = [&](std::string_view what) {
      throw Error(ErrorKind::usage,
                  fmt::format("rank {}: parameter {} ('{}') {}", rank, i, p.name, what));
    };
    if (p.name.empty() || p.name.find('\0') != std::string::npos)
      fail("needs a name without zero bytes, for errors to call it by");
    if (const auto [it, fresh] = seen.emplace(p.name, i); !fresh)
      fail(fmt::format("has the name of parameter {}: give each a name of its own", it->second));
    if (p.data == nullptr && p.count > 0)
      fail(fmt::format("has {} elements and a null pointer", p.count));
    if (!can_be_averaged(p.type))
      fail(
          fmt::format("is of type {}: gradients are averaged, so they must be floating-point or "
                      "complex",
                      to_string(p.type)));
  }
  return parameters;
}

std::string describe(const Parameter& parameter) {
  return fmt::format("'{}' ({} x {})", parameter.name, parameter.count, to_string(parameter.type));
}

std::uint64_t digest_of_text(std::string_view text) {
  return digest(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

class DataParallel::Impl {
 public:
  Impl(Communicator& communicator, std::vector<Parameter> parameters, const Options& options);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  void* gradient(std::size_t index, DataType type) const;
  void ready(std::size_t index);
  void finish();
  void broadcast_parameters(int root);
  void check_parameters();
  std::vector<std::byte> copied_to_host(const std::byte* memory, std::size_t bytes);

  const std::vector<Parameter>& parameters() const noexcept { return parameters_; }
  const std::vector<Bucket>& buckets() const noexcept { return buckets_; }
  std::size_t buckets_started() const noexcept { return works_.size(); }
  std::size_t buckets_done() const noexcept {
    return static_cast<std::size_t>(
        std::count_if(works_.begin(), works_.end(), [](const Work& work) { return work.done(); }));
  }

 private:
  struct Gradient {
    std::byte* memory = nullptr;
    std::size_t bucket = 0;
    bool ready = false;
  };

  void place_gradients(const std::optional<GpuGradients>& gpu);
  void agree_on_options();
  void agree_on_parameters();
  void begin_step();
  void start_buckets();
  void require_between_steps(std::string_view call) const;
  std::string names_of_missing() const;
  void throw_if_failed();
  void await_buckets();
  const Parameter& at(std::size_t index, std::string_view call) const;
  void invariants() const;

  // These members are constant after construction.
  Communicator& communicator_;
  const std::vector<Parameter> parameters_;
  const CallOptions call_options_;    // for what lies on the host
  const CallOptions memory_options_;  // for gradients and parameters
  const bool on_gpu_;
  const BucketOptions bucket_options_;
  const std::vector<Bucket> buckets_;
  Memory memory_;  // all buckets, one after the other
  std::vector<std::byte*> bucket_memory_;

  // Only the thread that owns this object uses these members.
  std::vector<Gradient> gradients_;     // indexed by parameter; only `ready` changes
  std::vector<std::size_t> not_ready_;  // indexed by bucket: gradients that are missing
  std::vector<Work> works_;  // calls of the buckets that have started in this step, in order
  std::uint64_t step_ = 0;
};

DataParallel::Impl::Impl(Communicator& communicator, std::vector<Parameter> parameters,
                         const Options& options)
    : communicator_(communicator),
      parameters_(checked(std::move(parameters), communicator.rank())),
      call_options_{options.timeout, {}},
      memory_options_(with_stream(call_options_, options.gpu)),
      on_gpu_(options.gpu.has_value()),
      bucket_options_(options.buckets),
      buckets_(plan_buckets(parameters_, options.buckets)) {
  check_memory(options.gpu, gradient_bytes(buckets_), communicator.rank());
  agree_on_options();
  agree_on_parameters();
  // A type that cannot be averaged fails here, not in ready().
  for (const Bucket& bucket : buckets_)
    communicator_.all_reduce(nullptr, nullptr, 0, bucket.type, Op::avg, call_options_);
  place_gradients(options.gpu);
  begin_step();
}

DataParallel::Impl::~Impl() {
  // The buckets' memory belongs to the communicator until each call has ended, well or not.
  for (Work& work : works_) {
    try {
      work.wait();
    } catch (const Error&) {  // the communicator keeps the error: failure()
    }
  }
}

void DataParallel::Impl::place_gradients(const std::optional<GpuGradients>& gpu) {
  const std::size_t total = gradient_bytes(buckets_);
  if (!gpu) memory_ = zeroed(total, communicator_.rank());
  gradients_.resize(parameters_.size());
  std::byte* const begin = gpu ? static_cast<std::byte*>(gpu->memory) : memory_.get();
  std::byte* next = begin;
  assert(bucket_memory_.empty() && reinterpret_cast<std::uintptr_t>(next) % 64 == 0);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    bucket_memory_.push_back(next);
    for (const Slot& slot : buckets_[b].slots)
      gradients_[slot.parameter] = {next + slot.offset_bytes, b, false};
    next += buckets_[b].bytes;
  }
  assert(next == begin + total);
}

void DataParallel::Impl::agree_on_options() {
  const auto& [cap, first_cap] = bucket_options_;
  const std::uint64_t mine[] = {cap, first_cap};
  if (differences(communicator_, mine, call_options_).empty()) return;
  const std::string all =
      by_rank(communicator_, fmt::format("{} B, first {} B", cap, first_cap), call_options_);
  throw Error(ErrorKind::mismatch,
              fmt::format("rank {}: the ranks have different caps of buckets: {}. Give all ranks "
                          "the same BucketOptions",
                          communicator_.rank(), all));
}

void DataParallel::Impl::agree_on_parameters() {
  std::int64_t most = static_cast<std::int64_t>(parameters_.size());
  communicator_.all_reduce(std::span(&most, 1), Op::max, call_options_);
  const auto text = [&](std::size_t i) {
    return i < parameters_.size() ? describe(parameters_[i])
                                  : fmt::format("none, there are {}", parameters_.size());
  };
  std::vector<std::uint64_t> mine(static_cast<std::size_t>(most));
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = digest_of_text(text(i));
  const std::vector<std::size_t> differing = differences(communicator_, mine, call_options_);
  if (differing.empty()) return;
  const std::string all = by_rank(communicator_, text(differing.front()), call_options_);
  throw Error(ErrorKind::mismatch,
              fmt::format("rank {}: the ranks have different parameters; the first that differs is "
                          "parameter {}: {}. List the same parameters in the same order on every "
                          "rank",
                          communicator_.rank(), differing.front(), all));
}

void DataParallel::Impl::begin_step() {
  works_.clear();
  for (Gradient& gradient : gradients_) gradient.ready = false;
  not_ready_.clear();
  for (const Bucket& bucket : buckets_) not_ready_.push_back(bucket.slots.size());
  invariants();
}

void* DataParallel::Impl::gradient(std::size_t index, DataType type) const {
  const Parameter& parameter = at(index, "gradient");
  if (type != parameter.type)
    throw Error(ErrorKind::usage,
                fmt::format("rank {}: gradient() of {} as {}: ask for it by its own type",
                            communicator_.rank(), describe(parameter), to_string(type)));
  assert(reinterpret_cast<std::uintptr_t>(gradients_[index].memory) % 64 == 0);
  return gradients_[index].memory;
}

void DataParallel::Impl::ready(std::size_t index) {
  throw_if_failed();
  const Parameter& parameter = at(index, "ready");
  Gradient& gradient = gradients_[index];
  if (gradient.ready)
    throw Error(
        ErrorKind::usage,
        fmt::format("rank {}: the gradient of '{}' (parameter {}) was marked ready twice in "
                    "step {}. Mark each gradient once before finish(), when nothing will "
                    "be added to it any more",
                    communicator_.rank(), parameter.name, index, step_));
  assert(not_ready_[gradient.bucket] > 0);
  gradient.ready = true;
  --not_ready_[gradient.bucket];
  start_buckets();
}

// Starts buckets strictly in order, the same on every rank, since a communicator runs its calls in
// the order of issue, and the gradients of different ranks may become ready in different orders.
void DataParallel::Impl::start_buckets() {
  while (works_.size() < buckets_.size() && not_ready_[works_.size()] == 0) {
    const Bucket& bucket = buckets_[works_.size()];
    std::byte* const memory = bucket_memory_[works_.size()];
    assert(bucket.bytes % size_of(bucket.type) == 0);
    try {
      works_.push_back(communicator_.all_reduce_async(memory, memory,
                                                      bucket.bytes / size_of(bucket.type),
                                                      bucket.type, Op::avg, memory_options_));
    } catch (const Error&) {
      throw_if_failed();  // the error of an earlier bucket, if there is one, names that bucket
      throw;
    }
  }
  invariants();
}

void DataParallel::Impl::finish() {
  throw_if_failed();
  if (const std::string missing = names_of_missing(); !missing.empty())
    throw Error(
        ErrorKind::usage,
        fmt::format("rank {}: finish() of step {}, but {}. Call ready() for every parameter "
                    "in every step; where a step does not use one, set its gradient to "
                    "zero and mark it too",
                    communicator_.rank(), step_, missing));
  start_buckets();  // none is left, unless starting one has thrown `usage` before
  assert(works_.size() == buckets_.size());

  await_buckets();
  ++step_;
  begin_step();
}

// Waits for the buckets that have started, and throws the first error, with its bucket's name.
void DataParallel::Impl::await_buckets() {
  assert(works_.size() <= buckets_.size());
  std::optional<Error> first_error;
  for (std::size_t b = 0; b < works_.size(); ++b) {
    try {
      works_[b].wait();
    } catch (const Error& error) {
      if (first_error) continue;  // the first error has ended the communicator and all other calls
      first_error.emplace(
          error.kind(),
          fmt::format("gradients of step {}, bucket {} of {} ('{}' to '{}'): {}", step_, b,
                      buckets_.size(), parameters_[buckets_[b].slots.front().parameter].name,
                      parameters_[buckets_[b].slots.back().parameter].name, error.what()));
    }
  }
  if (first_error) throw *first_error;
}

void DataParallel::Impl::broadcast_parameters(int root) {
  throw_if_failed();
  require_between_steps("broadcast_parameters");
  for (const Parameter& p : parameters_)
    communicator_.broadcast(p.data, p.count, p.type, root, memory_options_);
}

void DataParallel::Impl::check_parameters() {
  throw_if_failed();
  require_between_steps("check_parameters");
  std::vector<std::uint64_t> mine;
  for (const Parameter& p : parameters_) {
    const std::size_t bytes = p.count * size_of(p.type);
    const auto* const values = static_cast<const std::byte*>(p.data);
    mine.push_back(on_gpu_ ? digest(copied_to_host(values, bytes))
                           : digest(std::span(values, bytes)));
  }
  const std::vector<std::size_t> differing = differences(communicator_, mine, call_options_);
  if (differing.empty()) return;
  const std::size_t first = differing.front();
  const std::string all =
      by_rank(communicator_, fmt::format("digest {:016x}", mine[first]), call_options_);
  throw Error(
      ErrorKind::mismatch,
      fmt::format("rank {}: the values of '{}' (parameter {}, the first of {} that differ) "
                  "are not the same on all ranks: {}. Call broadcast_parameters() before "
                  "the first step, and update the parameters in the same way on every rank",
                  communicator_.rank(), parameters_[first].name, first, differing.size(), all));
}

// The memory may be a GPU's, to which this layer knows no other way than messages.
std::vector<std::byte> DataParallel::Impl::copied_to_host(const std::byte* memory,
                                                          std::size_t bytes) {
  std::vector<std::byte> copy(bytes);
  Group group;
  CallOptions options = memory_options_;
  options.group = &group;
  const int self = communicator_.rank();
  communicator_.send(memory, bytes, DataType::uint8, self, kTagOfCopies, options);
  communicator_.recv(copy.data(), bytes, DataType::uint8, self, kTagOfCopies, options);
  group.end();
  return copy;
}

std::string DataParallel::Impl::names_of_missing() const {
  constexpr std::size_t kNamed = 32;  // parameters that are named; the others are counted
  std::size_t missing = 0;
  std::string names;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (gradients_[i].ready) continue;
    if (++missing <= kNamed)
      names +=
          fmt::format("{}'{}' (parameter {})", missing == 1 ? "" : ", ", parameters_[i].name, i);
  }
  if (missing == 0) return "";
  if (missing > kNamed) names += fmt::format(" and {} more", missing - kNamed);
  return fmt::format("{} of {} gradients are not ready: {}", missing, gradients_.size(), names);
}

void DataParallel::Impl::require_between_steps(std::string_view call) const {
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (not_ready_[b] < buckets_[b].slots.size())
      throw Error(ErrorKind::usage,
                  fmt::format("rank {}: {}() in the middle of step {}: gradients have been marked "
                              "ready, so call finish() first",
                              communicator_.rank(), call, step_));
}

void DataParallel::Impl::throw_if_failed() {
  const std::optional<Error> failure = communicator_.failure();
  if (!failure) return;
  await_buckets();  // these calls have ended, since the communicator has failed
  throw *failure;
}

const Parameter& DataParallel::Impl::at(std::size_t index, std::string_view call) const {
  if (index >= parameters_.size())
    throw Error(ErrorKind::usage,
                fmt::format("rank {}: {}({}), but there are {} parameters, counted from 0",
                            communicator_.rank(), call, index, parameters_.size()));
  return parameters_[index];
}

void DataParallel::Impl::invariants() const {
  assert(gradients_.size() == parameters_.size());
  assert(bucket_memory_.size() == buckets_.size() && not_ready_.size() == buckets_.size());
  assert(works_.size() <= buckets_.size());
  // Every started bucket was ready, and the next bucket is not.
  assert(works_.empty() || not_ready_[works_.size() - 1] == 0);
  assert(works_.size() == buckets_.size() || not_ready_[works_.size()] > 0);
}

DataParallel::DataParallel(Communicator& communicator, std::vector<Parameter> parameters,
                           const Options& options)
    : impl_(std::make_unique<Impl>(communicator, std::move(parameters), options)) {}
DataParallel::DataParallel(DataParallel&&) noexcept = default;
DataParallel& DataParallel::operator=(DataParallel&&) noexcept = default;
DataParallel::~DataParallel() = default;

const std::vector<Parameter>& DataParallel::parameters() const noexcept {
  return impl_->parameters();
}
const std::vector<Bucket>& DataParallel::buckets() const noexcept { return impl_->buckets(); }
std::size_t DataParallel::buckets_started() const noexcept { return impl_->buckets_started(); }
std::size_t DataParallel::buckets_done() const noexcept { return impl_->buckets_done(); }
void* DataParallel::gradient(std::size_t index, DataType type) const {
  return impl_->gradient(index, type);
}
void DataParallel::ready(std::size_t index) { impl_->ready(index); }
void DataParallel::finish() { impl_->finish(); }
void DataParallel::broadcast_parameters(int root) { impl_->broadcast_parameters(root); }
void DataParallel::check_parameters() { impl_->check_parameters(); }

}  // namespace tutti::ddp
