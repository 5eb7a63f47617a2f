#include "runtime/operation.h"

#include <cassert>

#include "common/sync.h"
#include "runtime/communicator_impl.h"
#include "runtime/staged/staging.h"

namespace tutti {

Operation::Operation() { callbacks_.reserve(kUsualCallbacks); }
Operation::~Operation() = default;

void Operation::then(Work::Callback callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  call_back(callback);
}

// An exception of a callback is logged and goes no further, no matter when the callback was given.
// Once the call has ended, its communicator may be destroyed, and then there is no log to write to.
void Operation::call_back(const Work::Callback& callback) noexcept {
  const auto log = [this](const char* thrown) {
    const Waiter waiter(*this);
    if (waiter.owner_stays() || owner_lives()) owner->callback_threw(thrown);
  };
  try {
    callback(error_ ? &*error_ : nullptr);
  } catch (const std::exception& thrown) {
    log(thrown.what());
  } catch (...) {
    log("something that is no std::exception");
  }
}

// Runs the callbacks one after the other, including those that are added meanwhile. then() regards
// the call as ended once no callback is left.
void Operation::end(std::optional<Error> error) noexcept {
  std::unique_lock lock(mutex_);
  assert(!ended_ && !done() && "a call ends once");
  error_ = std::move(error);
  for (std::size_t next = 0; next < callbacks_.size(); ++next) {
    const Work::Callback callback = std::move(callbacks_[next]);
    lock.unlock();
    call_back(callback);
    lock.lock();
  }
  ended_ = true;
  callbacks_.clear();
  lock.unlock();
  done_.store(true, std::memory_order_seq_cst);
}

void Operation::await_parts(int parts) noexcept {
  hold();
  const std::lock_guard lock(mutex_);
  assert(parts > 0 && parts_ == 0 && !ended_);
  parts_ = parts;
  part_error_.reset();
}

void Operation::part_ended(const Error* error) noexcept {
  std::optional<Error> first;
  {
    const std::lock_guard lock(mutex_);
    assert(parts_ > 0 && !ended_);
    if (error != nullptr && !part_error_) part_error_ = *error;
    if (--parts_ > 0) return;
    first = std::move(part_error_);
  }
  owner->queue().group_ends();
  end(std::move(first));
  owner->queue().group_ended();
  let_go();
}

bool Operation::owner_lives() const noexcept { return !pool_->abandoned(); }

// A waiter counts itself before it asks whether the operation is done, and the owner asks for
// waiters after all operations are done. Both accesses are sequentially consistent, so that at
// least one of the two sees the other.
Operation::Waiter::Waiter(const Operation& operation) noexcept : operation_(operation) {
  operation_.pool_->waiters_.fetch_add(1, std::memory_order_seq_cst);
}

Operation::Waiter::~Waiter() {
  sync::Atomic<int>& waiters = operation_.pool_->waiters_;
  const int before = waiters.fetch_sub(1, std::memory_order_release);
  assert(before > 0);
  if (before == 1) waiters.notify_all();
}

bool Operation::Waiter::owner_stays() const noexcept {
  return !operation_.done_.load(std::memory_order_seq_cst);
}

void OperationPool::await_waiters() const noexcept {
  while (const int waiters = waiters_.load(std::memory_order_seq_cst)) waiters_.wait(waiters);
}

void Operation::let_go() noexcept {
  const int references = references_.fetch_sub(1, std::memory_order_acq_rel);
  assert(references > 0);
  if (references > 1) return;
  assert(pool_ != nullptr);
  const std::shared_ptr<OperationPool> pool = std::move(pool_);
  pool->give_back(this);
}

OperationPool::~OperationPool() {
  for (Operation* each : {free_, given_back_.load(std::memory_order_acquire)})
    while (each != nullptr) delete std::exchange(each, each->next_.load(std::memory_order_relaxed));
}

// Allocates several operations at once, because the number that is in use at a time depends on
// which rank is faster.
Operation* OperationPool::take_free() {
  constexpr int kAtOnce = 8;
  if (free_ == nullptr) free_ = given_back_.exchange(nullptr, std::memory_order_acquire);
  for (int made = 0; free_ == nullptr || (made > 0 && made < kAtOnce); ++made) {
    auto* fresh = new Operation();
    fresh->next_.store(free_, std::memory_order_relaxed);
    free_ = fresh;
  }
  return std::exchange(free_, free_->next_.load(std::memory_order_relaxed));
}

OperationRef OperationPool::take(CommunicatorImpl* owner, PlannedCall call) {
  Operation* operation = take_free();
  assert(operation->references_.load(std::memory_order_relaxed) == 0);
  assert(operation->pool_ == nullptr && operation->callbacks_.empty());
  operation->pool_ = shared_from_this();
  operation->owner = owner;
  operation->call = std::move(call);
  operation->transfer.operation = nullptr;
  operation->captured = false;
  operation->next_.store(nullptr, std::memory_order_relaxed);
  operation->error_.reset();
  operation->ended_ = false;
  operation->done_.store(false, std::memory_order_relaxed);
  return OperationRef(operation);
}

void OperationPool::give_back(Operation* operation) noexcept {
  assert(operation->references_.load(std::memory_order_relaxed) == 0);
  operation->staging.reset();  // null, but where the call could not be queued
  operation->call.program.reset();
  operation->call.blocks.reset();
  Operation* next = given_back_.load(std::memory_order_relaxed);
  do operation->next_.store(next, std::memory_order_relaxed);
  while (!given_back_.compare_exchange_weak(next, operation, std::memory_order_release,
                                            std::memory_order_relaxed));
}

void OperationQueue::push(const OperationRef& operation) noexcept {
  assert(operation && operation->next_.load(std::memory_order_relaxed) == nullptr);
  operation->hold();
  last_->next_.store(operation.get(), std::memory_order_release);
  last_ = operation.get();
}

// The reference that push() took passes to popped_.
void OperationQueue::pop() noexcept {
  Operation* next = front();
  assert(next != nullptr);
  popped_ = OperationRef(next);
  next->let_go();
}

}  // namespace tutti
