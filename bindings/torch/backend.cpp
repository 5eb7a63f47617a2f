#include "backend.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include <torch/csrc/utils/pybind.h>

#include <c10/util/Exception.h>

#include "calls.h"
#include "store.h"
#include "tensors.h"

namespace tutti::pytorch {
namespace {

constexpr std::chrono::seconds kGrace{5};

// Translates torch's timeout, in which 0 means no limit. tutti takes at most a day.
std::chrono::milliseconds bounded(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kDay = std::chrono::hours(24);
  return timeout.count() <= 0 ? kDay : std::min(timeout, kDay);
}

Communicator make(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                  std::chrono::milliseconds timeout) {
  try {
    Config config = Config::from_env();
    config.timeout = config.startup_timeout = bounded(timeout);
    return Communicator::create(std::make_shared<Store>(std::move(store)), rank, size, config);
  } catch (const Error& error) {
    rethrow(error);
  }
}

// Runs what comes on streams behind a call that has begun, and whose tensors are therefore held
// until it has ended, even if this fails. Returns its exception.
template <typename Step>
std::exception_ptr left(Step&& step) {
  try {
    step();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

Backend::Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                 std::chrono::milliseconds timeout)
    : c10d::Backend(rank, size),
      process_(getpid()),
      timeout_(timeout),
      communicator_(make(std::move(store), rank, size, timeout)) {
  init();
}

Backend::Backend(Communicator&& communicator, std::chrono::milliseconds timeout)
    : c10d::Backend(communicator.rank(), communicator.size()),
      process_(getpid()),
      timeout_(timeout),
      communicator_(std::move(communicator)) {
  init();
}

Backend::~Backend() {
  // The thread that ends a call may need the interpreter, for example to free a tensor.
  std::optional<pybind11::gil_scoped_release> released;
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) released.emplace();
  shutdown();
}

c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions() {
  return c10::make_intrusive<Options>(kName, timeout_);
}

void Backend::setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& options) {
  const auto own = std::find(ranks.begin(), ranks.end(), getRank());
  if (own == ranks.end()) return nullptr;
  return merge(store, options, static_cast<int>(own - ranks.begin()),
               static_cast<int>(ranks.size()));
}

c10::intrusive_ptr<c10d::Backend> Backend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const c10::intrusive_ptr<Options>& options,
                                                 const int& rank, const int& size) {
  return c10::make_intrusive<Backend>(store, rank, size,
                                      options ? options->timeout : timeout_.load());
}

c10::intrusive_ptr<c10d::Backend> Backend::shrink(const std::vector<std::int64_t>& excluded,
                                                  int flags,
                                                  const c10::intrusive_ptr<Options>& options) {
  constexpr int kAbort = 1;  // torch.distributed.SHRINK_ABORT
  const auto timeout = options ? options->timeout : timeout_.load();
  if (flags == kAbort) end_calls("its process group shrinks");
  const std::lock_guard lock(calls_);
  if (!communicator_) refuse_left();
  try {
    return c10::make_intrusive<Backend>(
        communicator_->shrink_without(std::vector<int>(excluded.begin(), excluded.end()),
                                      bounded(timeout)),
        timeout);
  } catch (const Error& error) {
    rethrow(error);
  }
}

// --- Making calls ---

void Backend::refuse_left() const {
  C10_THROW_ERROR(DistBackendError,
                  c10::str("rank ", getRank(),
                           " has left this process group (it was shut down, or destroyed)"));
}

Backend::WorkPtr Backend::work(c10d::OpType what, const char* title, const Tensors& inputs) {
  return c10::make_intrusive<Work>(getRank(), what, title, inputs, completions_, number_);
}

// The call is counted before it starts, since it may end at once.
void Backend::start_together(std::vector<WorkPtr> parts, const WorkPtr& whole, tutti::Work handle) {
  begins();
  whole->started(std::move(handle), std::move(parts), [this] { ends(); });
}

void Backend::begins() {
  const std::lock_guard lock(under_way_mutex_);
  ++under_way_;
}

void Backend::ends() {
  const std::lock_guard lock(under_way_mutex_);
  assert(under_way_ > 0);
  if (--under_way_ == 0) none_under_way_.notify_all();
}

std::chrono::milliseconds Backend::timeout_of(const Terms& terms) const {
  return bounded(terms.timeout == c10d::kUnsetTimeout ? timeout_.load() : terms.timeout);
}

Backend::Handle Backend::issue(WorkPtr work, const Terms& terms, CallFunction call) {
  try {
    const std::lock_guard lock(calls_);
    if (!communicator_) refuse_left();
    CallOptions options;
    options.timeout = timeout_of(terms);
    options.premultiplier = terms.factor;
    options.received = terms.received;
    options.group = group_.get();
    const Interruptible interruptible(interrupted);
    const auto gpu = work->gpu();
    if (gpu) {
      const c10::Stream stream = streams_.of(*gpu, terms.lane);
      work->enter(stream);
      options.stream = handle_of(stream);
    }
    ++number_;
    tutti::Work handle =
        call(*communicator_, options, (terms.async || gpu) && options.group == nullptr);
    if (options.group != nullptr) {
      coalesced_.push_back(work);
      return work;
    }
    const auto torn = gpu ? left([&] { work->leave(); }) : nullptr;
    start_together({}, work, std::move(handle));
    if (torn) std::rethrow_exception(torn);
  } catch (const Error& error) {
    raise_interruption();
    rethrow(error);
  }
  if (!terms.async) work->wait();
  raise_interruption();  // The call has ended well meanwhile.
  return work;
}

// --- Memory ---

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK_VALUE(options.device().is_cpu(),
                    "allocate_tensor: tutti has memory of the host alone, and not of ",
                    options.device());
  const auto bytes = static_cast<std::size_t>(size) * options.dtype().itemsize();
  try {
    const std::lock_guard lock(calls_);
    if (!communicator_) refuse_left();
    const auto buffer = std::make_shared<Buffer>(Buffer::allocate(*communicator_, bytes));
    return at::from_blob(
        buffer->data(), {size}, [buffer](void*) {}, options);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unavailable) rethrow(error);
    return at::empty({size}, options);
  }
}

// --- Point to point ---

Backend::Handle Backend::send(Tensors& tensors, int to, int tag) {
  at::Tensor& tensor = only("send", tensors);
  check_tensor("send", tensor);
  WorkPtr made = work(c10d::OpType::SEND, "tutti:send", tensors);
  const at::Tensor data = made->input(tensor);
  made->give(tensors);
  const DataType type = elements(data).type;
  const std::size_t count = count_of(data);
  return issue(made, {.lane = Lane::sends},
               TUTTI_CALL(send, data.data_ptr(), count, type, to, tag));
}

Backend::Handle Backend::recv(Tensors& tensors, int from, int tag) {
  at::Tensor& tensor = only("recv", tensors);
  check_output("recv", tensor);
  TORCH_CHECK_VALUE(
      from != kAnySource || tensor.device().is_cpu() ||
          !is_captured(current_stream(tensor.device())),
      "recv: says which rank has sent, and a stream that is being captured into a CUDA graph "
      "receives nothing yet; name the rank");
  WorkPtr made =
      work(c10d::OpType::RECV, from == kAnySource ? "tutti:recvAnySource" : "tutti:recv", tensors);
  const at::Tensor data = made->output(tensor, true);  // a message may be shorter than the tensor
  if (from == kAnySource) made->wait_on_host();        // torch asks for the source next
  made->give(tensors);
  const DataType type = elements(data).type;
  const std::size_t count = count_of(data);
  return issue(made, {.received = &made->received(), .lane = Lane::receives},
               TUTTI_CALL(recv, data.data_ptr(), count, type, from, tag));
}

Backend::Handle Backend::recvAnysource(Tensors& tensors, int tag) {
  return recv(tensors, kAnySource, tag);
}

void Backend::startCoalescing() {
  const std::lock_guard lock(calls_);
  TORCH_CHECK(group_ == nullptr, "startCoalescing: within what is coalesced already");
  group_ = std::make_unique<Group>();
}

Backend::Handle Backend::endCoalescing() {
  WorkPtr whole = work(c10d::OpType::COALESCED, "tutti:coalesced", {});
  try {
    const std::lock_guard lock(calls_);
    TORCH_CHECK(group_ != nullptr, "endCoalescing: without startCoalescing");
    const std::unique_ptr<Group> group = std::exchange(group_, nullptr);
    if (!communicator_) refuse_left();
    Tensors results;
    for (const WorkPtr& part : coalesced_)
      for (const at::Tensor& each : part->result()) results.push_back(each);
    whole->give(std::move(results));
    std::vector<WorkPtr> parts = std::exchange(coalesced_, {});
    tutti::Work handle = group->end_async();
    const auto torn = left([&] {
      for (const WorkPtr& part : parts)
        if (part->gpu()) part->leave();
      whole->leave(parts, streams_);
    });
    start_together(std::move(parts), whole, std::move(handle));
    if (torn) std::rethrow_exception(torn);
  } catch (const Error& error) {
    rethrow(error);
  }
  return whole;
}

// --- Ending ---

c10d::ErrorType Backend::getError() {
  const std::lock_guard lock(communicator_mutex_);
  const auto error = communicator_ ? communicator_->failure() : std::nullopt;
  if (!error) return c10d::ErrorType::SUCCESS;
  if (error->kind() == ErrorKind::timeout) return c10d::ErrorType::TIMEOUT;
  return error->kind() == ErrorKind::peer_lost ? c10d::ErrorType::REMOTE_ERROR
                                               : c10d::ErrorType::COMM_ERROR;
}

// Does not take calls_, since a blocking call that it has to end holds that mutex.
void Backend::end_calls(const char* why) {
  const std::lock_guard lock(communicator_mutex_);
  // The sums' communicator comes first: peers that learn of the other one's end may close it at
  // once.
  if (sparse_ != nullptr) sparse_->abort(why);
  if (communicator_) communicator_->abort(why);
}

void Backend::shutdown() {
  if (getpid() != process_) return;  // a forked child, to which the parent's calls do not belong
  {
    std::unique_lock lock(under_way_mutex_);
    if (!none_under_way_.wait_for(lock, kGrace, [&] { return under_way_ == 0; }))
      end_calls("its process group was destroyed with calls under way");
  }
  const std::lock_guard last_caller(calls_);
  coalesced_.clear();
  group_.reset();
  std::optional<Communicator> left;
  {
    const std::lock_guard lock(communicator_mutex_);
    left.swap(communicator_);
    sparse_.reset();
  }
  left.reset();  // This ends its calls.
  std::unique_lock lock(under_way_mutex_);
  none_under_way_.wait(lock,
                       [&] { return under_way_ == 0; });  // sparse sums end by their deadlines
}

}  // namespace tutti::pytorch
