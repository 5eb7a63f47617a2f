// The communicator's queue: asynchronous operations, who advances them, and waiting for them.
#include <algorithm>
#include <system_error>

#include "runtime/communicator_impl.h"
#include "runtime/group.h"

namespace tutti {

// Behind the operations that are pending.
void CommunicatorImpl::run_behind(PlannedCall call) {
  refuse_in_callback();
  const OperationRef operation = enqueue(prepared(std::move(call)));
  help_heeding(*operation);
  if (operation->error()) throw *operation->error();
}

Work CommunicatorImpl::start(const Call& call) {
  refuse_in_group(call.group);
  Plan& plan = this->plan(call);
  if (!plan.program && !pending()) plan.program = programs_.get(plan.key);  // the engine is free
  return Work(*enqueue(prepared(planned(call, plan))));
}

Work CommunicatorImpl::start(const PlannedCall& call) {
  check_usable(to_string(call.key.signature.what));
  return Work(*enqueue(prepared(call)));
}

OperationRef CommunicatorImpl::prepared(PlannedCall call) {
  OperationRef operation = pool_->take(this, std::move(call));
  const bool variable = operation->call.key.signature.lengths != 0;
  if (variable && operation->call.blocks == nullptr) operation->own_blocks = blocks_;
  return operation;
}

OperationRef CommunicatorImpl::enqueue(OperationRef operation) {
  if (!registered_) {
    parts_.runtime->add(*this);
    registered_ = true;
  }
  const bool transfers = operation->is_transfer();
  pending_.fetch_add(1, std::memory_order_seq_cst);
  (transfers ? transfer_queue_ : queue_).push(operation);
  parts_.runtime->poke();
  return operation;
}

// With engine_mutex_ held. Errors end the operation under way and all behind it. Once nothing is
// pending it touches only its queue: the engine is the calling thread's again.
void CommunicatorImpl::advance_queue() {
  for (Operation* operation = queue_.front(); operation != nullptr; operation = queue_.front()) {
    std::optional<Error> error;
    try {
      if (failed_.load(std::memory_order_acquire)) throw *failure();
      if (!under_way_) begin_queued(*operation);
      if (!advance_call()) return;
      complete();
    } catch (...) {
      error = diagnose_thrown();
    }
    if (error) {
      workers_.stop();
      fail(*error);
    }
    finish_front(std::move(error));
  }
}

void CommunicatorImpl::finish_front(std::optional<Error> error) {
  under_way_ = false;
  deadline_.store(TimePoint::max(), std::memory_order_relaxed);
  end(*queue_.front(), std::move(error));
  queue_.pop();
  one_less_pending();
}

void CommunicatorImpl::end(Operation& operation, std::optional<Error> error) {
  callback_thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  operation.end(std::move(error));
  callback_thread_.store({}, std::memory_order_relaxed);
}

void CommunicatorImpl::wake_waiters() const {
  if (status_page_.sleepers.load(std::memory_order_seq_cst) > 0) parts_.shared->doorbell->ring();
}

void CommunicatorImpl::one_less_pending() {
  pending_.fetch_sub(1, std::memory_order_seq_cst);
  wake_waiters();  // those who wait for their operation, and drain()
}

void CommunicatorImpl::group_ends() {
  const std::lock_guard lock(mutex_);
  group_threads_.push_back(std::this_thread::get_id());
}

void CommunicatorImpl::group_ended() {
  const std::lock_guard alive(mutex_);
  group_threads_.erase(
      std::find(group_threads_.begin(), group_threads_.end(), std::this_thread::get_id()));
  groups_.fetch_sub(1, std::memory_order_seq_cst);
  wake_waiters();
}

bool CommunicatorImpl::in_callback() const noexcept {
  const std::thread::id here = std::this_thread::get_id();
  if (callback_thread_.load(std::memory_order_relaxed) == here) return true;
  if (groups_.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard lock(mutex_);
  return std::find(group_threads_.begin(), group_threads_.end(), here) != group_threads_.end();
}

void CommunicatorImpl::destroy(std::unique_ptr<CommunicatorImpl> communicator) noexcept {
  if (communicator == nullptr) return;
  // In the background thread, too: it would wait for itself to let go of the communicator.
  if (!communicator->in_callback() && !communicator->parts_.runtime->in_background()) return;
  CommunicatorImpl* const dying = communicator.release();
  try {
    std::thread([dying] { delete dying; }).detach();
  } catch (const std::system_error& error) {  // better kept than waited for without end
    dying->parts_.runtime->log().write(
        LogLevel::warn, "a communicator destroyed in a callback is kept, no thread: {}",
        error.what());
  }
}

void CommunicatorImpl::refuse_in_callback() const {
  if (in_callback())
    throw Error(ErrorKind::usage,
                "a callback of this communicator's work waits for it: start asynchronous calls "
                "there, and wait elsewhere");
}

void CommunicatorImpl::callback_threw(const char* what) noexcept {
  parts_.runtime->log().write(LogLevel::warn, "a callback threw, which is ignored: {}", what);
}

bool CommunicatorImpl::advance_pending() noexcept {
  const std::unique_lock lock(engine_mutex_, std::try_to_lock);
  if (lock) {
    advance_queue();
    advance_transfers();
  }
  return lock.owns_lock();
}

void CommunicatorImpl::look_pending() noexcept {
  const std::unique_lock lock(engine_mutex_, std::try_to_lock);
  if (!lock) return;
  if (under_way_) look_queue();
  look_transfers();
}

void CommunicatorImpl::background_progress() noexcept {
  try {
    parts_.transport->background_progress();
  } catch (...) {  // the next call meets it, too, and has whom to tell
    return;
  }
}

void CommunicatorImpl::look_queue() {
  const Operation& operation = *queue_.front();
  std::optional<Error> error;
  try {
    look(operation.deadline, operation.call.timeout);
  } catch (...) {
    error = diagnose_thrown();
  }
  if (!error) return deadline_.store(next_look(operation.deadline), std::memory_order_relaxed);
  workers_.stop();
  fail(*error);
  finish_front(std::move(error));
  advance_queue();  // ends what is queued behind it
}

TimePoint CommunicatorImpl::next_deadline() const {
  return std::min(deadline_.load(std::memory_order_seq_cst),
                  transfer_deadline_.load(std::memory_order_seq_cst));
}

template <typename Done>
bool CommunicatorImpl::help_until(Done&& done, TimePoint limit) {
  const Clock& clock = parts_.runtime->clock();
  bool expired = false;
  wait(
      policy_, clock,
      [&] {
        if (!done()) advance_pending();
        return done() || expired;
      },
      [&] {
        expired = clock.now() >= limit;
        if (!done()) look_pending();
      },
      [&](auto& attempt) { return sleep(attempt, std::min(limit, next_deadline())); });
  if (done()) return true;
  parts_.runtime->poke();  // the background thread alone minds the deadline now
  return false;
}

bool CommunicatorImpl::help(const Operation& operation, TimePoint limit) {
  refuse_in_callback();
  return help_until([&] { return operation.done(); }, limit);
}

void CommunicatorImpl::help_heeding(const Operation& operation) {
  while (!help(operation, next_heed(TimePoint::max()))) continue;
}

bool CommunicatorImpl::drain(TimePoint limit) {
  const auto drained = [this] {
    return !pending() && groups_.load(std::memory_order_acquire) == 0;
  };
  return drained() || help_until(drained, limit);
}

}  // namespace tutti
