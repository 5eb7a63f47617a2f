#include "runtime/queue.h"

#include <algorithm>
#include <cassert>

#include "common/sync.h"
#include "runtime/staged/staging.h"

namespace tutti {

Queue::Queue(CommunicatorImpl& owner, const CommunicatorParts& parts, CallPlanner& planner,
             Collectives& collectives, Messages& messages, Failure& failure)
    : owner_(owner),
      parts_(parts),
      planner_(planner),
      collectives_(collectives),
      messages_(messages),
      failure_(failure) {}

OperationRef Queue::operation_of(PlannedCall call, const BlockTable& blocks) {
  OperationRef operation = pool_->take(&owner_, std::move(call));
  const bool variable = operation->call.key.signature.lengths != 0;
  if (variable && operation->call.blocks == nullptr) operation->own_blocks = blocks;
  return operation;
}

OperationRef Queue::operation_of(const TransferCall& call) {
  OperationRef operation = pool_->take(&owner_, {});
  operation->transfer.call = call;
  operation->transfer.called = 0;
  operation->transfer.operation = operation.get();
  return operation;
}

void Queue::push(const OperationRef& operation) {
  assert(operation && !operation->done());
  const bool transfers = operation->is_transfer();
  const std::uint64_t before = unended_.fetch_add(1, std::memory_order_seq_cst);
  // A transfer with nothing before it begins at once.
  const bool at_once = transfers && !operation->staging && (before & (kOneGroup - 1)) == 0;
  operation->called = at_once ? 0 : ticks();
  (transfers ? transfer_queue_ : collectives_queue_).push(operation);
}

void Queue::set_captures(bool any) noexcept {
  if (any)
    unended_.fetch_or(kCaptures, std::memory_order_seq_cst);
  else
    unended_.fetch_and(~kCaptures, std::memory_order_seq_cst);
}

// It has one more reference, until it ends.
void Queue::replay(Operation& operation) noexcept {
  assert(operation.captured);
  operation.hold();
  operation.called = ticks();
  unended_.fetch_add(1, std::memory_order_seq_cst);
  operation.next_unready = replayed_.load(std::memory_order_relaxed);
  while (!replayed_.compare_exchange_weak(operation.next_unready, &operation,
                                          std::memory_order_seq_cst, std::memory_order_relaxed))
    continue;
}

void Queue::List::push(Operation& operation) noexcept {
  operation.next_unready = nullptr;
  *last = &operation;
  last = &operation.next_unready;
}

Operation* Queue::List::pop() noexcept {
  assert(first != nullptr);
  Operation* const popped = std::exchange(first, first->next_unready);
  if (first == nullptr) last = &first;
  return popped;
}

void Queue::take_replays() noexcept {
  Operation* newest = replayed_.exchange(nullptr, std::memory_order_acquire);
  Operation* oldest = nullptr;
  while (newest != nullptr) {
    Operation* const before = std::exchange(newest->next_unready, oldest);
    oldest = std::exchange(newest, before);
  }
  while (oldest != nullptr) {
    Operation& next = *oldest;
    oldest = next.next_unready;
    (next.is_transfer() ? transfer_replays_ : replays_).push(next);
  }
}

bool Queue::advance(TimePoint now) {
  if (replayed_.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
    take_replays();
  if (overlapped_.load(std::memory_order_relaxed) && !failure_.exists()) [[unlikely]]
    failure_.set(Error(ErrorKind::usage,
                       "a CUDA graph starts a call whose last start has not ended: executable "
                       "graphs of one graph cannot be under way at the same time"));
  if (leaving_ != nullptr) [[unlikely]]
    end_left();
  const bool collectives = advance_collectives(now);
  const bool transfers = advance_transfers(now);
  if (leaving_ != nullptr) [[unlikely]]
    end_left();  // Nobody may call this again for those that have ended now.
  return transfers || collectives;
}

void Queue::look(TimePoint now) {
  assert(!under_way_ || current_ != nullptr);
  if (under_way_) look_collective(now);
  look_transfers(now);
}

// An error ends the operation under way and all operations behind it. Once nothing is pending, this
// function touches only the queue, because the calling thread may use the engine again. Only one
// operation begins at `now`, because callbacks may take a long time before the next one begins.
bool Queue::advance_collectives(TimePoint now) {
  while (Operation* const operation = next_collective()) {
    current_ = operation;
    try {
      failure_.throw_if_any();
      if (!under_way_) {
        if (now == kNoTime) return true;
        if (operation->staging && !operation->staging->ready())
          return await_stream(*operation, now);
        begin(*operation, std::exchange(now, kNoTime));
      }
      if (collectives_.explaining() || !collectives_.advance(1)) return false;
    } catch (...) {
      if (!fail_collective()) return false;
      continue;
    }
    end_current(std::nullopt);
  }
  return false;
}

// A call that waits for its stream may wait for the graph that has started another one, but not if
// the stream has its kernel already: then the call was made before its communicator was captured.
Operation* Queue::next_collective() const noexcept {
  if (under_way_) return current_;
  Operation* const queued = collectives_queue_.front();
  if (replays_.first == nullptr) [[likely]]
    return queued;
  const bool passed =
      queued == nullptr ||
      (queued->staging && !queued->staging->kernel_on_stream() && !queued->staging->ready());
  return passed ? replays_.first : queued;
}

// The stream of a device announces nothing, so the queue looks often. Returns false.
bool Queue::await_stream(Operation& operation, TimePoint now) {
  if (!operation.staging->kernel_on_stream()) return false;
  collective_look_.store(now + kDevicePoll, std::memory_order_seq_cst);
  parts_.runtime->expect_deadline(now + kDevicePoll);
  return false;
}

TimePoint Queue::next_look_at(const Operation& operation, TimePoint now) {
  const TimePoint next = collectives_.next_look(now, operation.deadline);
  const bool device = operation.staging && operation.staging->device_call() != nullptr;
  return device ? std::min(next, now + kDevicePoll) : next;
}

void Queue::begin(Operation& operation, TimePoint now) {
  assert(!under_way_ && &operation == current_ && now != kNoTime);
  PlannedCall& call = operation.call;
  if (!call.program) call.program = planner_.bind(call.key);
  const CallExtras extras = call.extras();
  CallBuffers buffers = buffers_of(call, extras, &operation.blocks());
  if (operation.staging) buffers.device = operation.staging->device_call();
  under_way_ = true;
  collectives_.begin(*call.program, buffers, false, 0);
  parts_.recorder->queued(operation.called);
  operation.deadline = now + call.timeout;
  const TimePoint first_look = next_look_at(operation, now);
  collective_look_.store(first_look, std::memory_order_seq_cst);
  parts_.runtime->expect_deadline(first_look);
}

// Called in an exception handler: ends the current operation with the error that is being
// handled. Returns false if look() has to ask a peer first.
bool Queue::fail_collective() {
  collectives_.stop();
  std::optional<Error> error = collectives_.explain();
  if (!error) {
    collective_look_.store(TimePoint::min(), std::memory_order_seq_cst);
    parts_.runtime->expect_deadline(TimePoint::min());
    return false;
  }
  end_current(failure_.set(*error));
  return true;
}

void Queue::look_collective(TimePoint now) {
  assert(under_way_ && pending());
  const Operation& operation = *current_;
  try {
    failure_.throw_if_any();
    collectives_.look(now, operation.deadline, operation.call.timeout);
  } catch (...) {
    if (fail_collective()) advance_collectives(kNoTime);  // ends those queued behind it
    return;
  }
  collective_look_.store(next_look_at(operation, now), std::memory_order_relaxed);
}

void Queue::end_current(std::optional<Error> error) {
  assert(current_ != nullptr);
  under_way_ = false;
  collective_look_.store(TimePoint::max(), std::memory_order_relaxed);
  Operation& operation = *current_;
  if (operation.captured) return end_replay(*replays_.pop(), error);
  if (operation.staging) {
    await_leaving(operation, std::move(error));
    return collectives_queue_.pop();
  }
  end(operation, std::move(error));
  collectives_queue_.pop();
  one_less_pending();
}

// The graph may start the call again as soon as its stream goes on. Therefore that comes last.
void Queue::end_replay(Operation& operation, const std::optional<Error>& error) {
  if (error && !std::exchange(replay_failed_, true))
    parts_.runtime->log().write(LogLevel::error,
                                "a call that a CUDA graph has started failed, and each later one "
                                "of this communicator will; the stream goes on, and what the call "
                                "should have written is undefined: {}",
                                error->what());
  one_less_pending();
  operation.staging->end_replay();
  operation.let_go();
}

// An operation that waits for its stream has one more reference, until it ends.
void Queue::await_leaving(Operation& operation, std::optional<Error> error) {
  assert(operation.staging->next_leaving == nullptr);
  operation.hold();
  Operation** last = &leaving_;
  while (*last != nullptr) last = &(*last)->staging->next_leaving;
  *last = &operation;
  operation.staging->release(std::move(error));
}

// Ends the operations of which nothing is left on their streams, which may be others than the
// first. Their pinned memory is free before the program hears of it.
void Queue::end_left() {
  for (Operation** next = &leaving_; *next != nullptr;) {
    Operation& operation = **next;
    if (!operation.staging->left()) {
      next = &operation.staging->next_leaving;
      continue;
    }
    *next = operation.staging->next_leaving;
    std::optional<Error> outcome = operation.staging->outcome();
    operation.staging.reset();
    end(operation, std::move(outcome));
    operation.let_go();
    one_less_pending();
  }
}

void Queue::end(Operation& operation, std::optional<Error> error) {
  callback_thread_.store(sync::this_thread(), std::memory_order_relaxed);
  operation.end(std::move(error));
  callback_thread_.store({}, std::memory_order_relaxed);
}

void Queue::one_less_pending() {
  assert(pending());
  unended_.fetch_sub(1, std::memory_order_seq_cst);
  parts_.wake_sleepers();  // threads that wait for an operation, or for the communicator's end
}

// Messages may be touched only while an operation is pending; otherwise they belong to the calling
// thread. Callbacks may queue more operations.
bool Queue::advance_transfers(TimePoint now) {
  try {
    while (pending() &&
           (!messages_.idle() || messages_.first_ended() != nullptr || transfers_wait())) {
      failure_.throw_if_any();
      if (starts_transfers()) {
        if (now == kNoTime) return true;
        start_transfers(std::exchange(now, kNoTime));
      }
      messages_.advance();
      if (!end_transfers(kNoTime, std::nullopt)) return false;
    }
  } catch (...) {
    fail_transfers(messages_.caught_error());
  }
  return false;
}

bool Queue::starts_transfers() const noexcept {
  const auto ready = [](const List& unready) {
    return unready.first != nullptr && (!unready.first->staging || unready.first->staging->ready());
  };
  return transfer_queue_.front() != nullptr || transfer_replays_.first != nullptr ||
         ready(unready_[0]) || ready(unready_[1]);
}

// An operation that is under way, or waits for its stream, has one more reference, until it ends.
// Sends are matched in the order of their calls, and so are receives: what waits for its stream
// holds up what comes behind it in its own direction.
void Queue::start_transfers(TimePoint now) {
  while (Operation* operation = transfer_queue_.front()) {
    assert(operation->is_transfer() && pending());
    operation->hold();
    transfer_queue_.pop();
    unready_[static_cast<std::size_t>(operation->transfer.call.direction)].push(*operation);
  }
  for (List& unready : unready_) start_ready(unready, now);
  if (transfer_replays_.first == nullptr) [[likely]]
    return;
  while (transfer_replays_.first != nullptr) {
    Operation& operation = *transfer_replays_.pop();
    insert_replay(unready_[static_cast<std::size_t>(operation.transfer.call.direction)], operation);
  }
  for (List& unready : unready_) start_ready(unready, now);
}

// A transfer that a graph has started comes before those that wait for their streams, which may
// wait for that graph, but behind those with the same peer whose streams have come to them.
void Queue::insert_replay(List& unready, Operation& operation) noexcept {
  const auto meets = [&](const Operation& other) {
    const int peer = operation.transfer.call.peer, others = other.transfer.call.peer;
    return peer == others || peer == kAnySource || others == kAnySource;
  };
  Operation** place = &unready.first;
  for (Operation** next = place; *next != nullptr; next = &(*next)->next_unready)
    if ((!(*next)->staging || (*next)->staging->ready()) && meets(**next))
      place = &(*next)->next_unready;
  operation.next_unready = std::exchange(*place, &operation);
  if (operation.next_unready == nullptr) unready.last = &operation.next_unready;
}

void Queue::start_ready(List& unready, TimePoint now) {
  while (unready.first != nullptr && (!unready.first->staging || unready.first->staging->ready()))
    start(*unready.pop(), now);
}

void Queue::start(Operation& operation, TimePoint now) {
  Transfer& transfer = operation.transfer;
  transfer.called = operation.called;
  transfer.deadline = now + transfer.call.timeout;
  const TimePoint first = transfer_look_.load(std::memory_order_relaxed);
  transfer_look_.store(std::min(first, transfer.deadline), std::memory_order_seq_cst);
  parts_.runtime->expect_deadline(transfer.deadline);
  messages_.start(transfer);
}

// Ends a transfer that was under way or waited for its stream.
void Queue::end_transfer(Operation& operation, std::optional<Error> error) {
  if (operation.captured) return end_replay(operation, error);
  if (operation.staging) {
    await_leaving(operation, std::move(error));
    return operation.let_go();
  }
  end(operation, std::move(error));
  operation.let_go();
  one_less_pending();
}

// Ends the operations of transfers that have ended: successfully if they are done, else with
// `error`. Returns whether there was any. Posted messages have to leave this rank first, or the
// deadline has to pass.
bool Queue::end_transfers(TimePoint now, const std::optional<Error>& error) {
  bool any = false;
  const Transfer* const first = messages_.first_ended();
  if (first != nullptr && !error && !collectives_.all_left() && now < first->deadline) return false;
  while (pending()) {
    Transfer* transfer = messages_.take_ended();
    if (transfer == nullptr) return any;
    any = true;
    assert(transfer->operation != nullptr && (transfer->done || error));
    Operation& operation = *transfer->operation;
    if (transfer->done) report_received(*transfer);
    end_transfer(operation, transfer->done ? std::nullopt : error);
  }
  return any;
}

void Queue::fail_transfers(const Error& found) {
  // Where another thread has set the failure, it may not have revoked the buffers yet, and this
  // thread may have named places since. The program has its buffers back once the transfers end.
  messages_.record_waiting();
  const Error error = failure_.set(found);
  messages_.abandon();
  assert(messages_.idle() && failure_.exists());
  end_transfers(kNoTime, error);
  while (Operation* operation = transfer_queue_.front()) {
    operation->hold();
    transfer_queue_.pop();
    end_transfer(*operation, error);
  }
  for (List* const list : {&unready_[0], &unready_[1], &transfer_replays_})
    while (list->first != nullptr) end_transfer(*list->pop(), error);
  transfer_look_.store(TimePoint::max(), std::memory_order_relaxed);
  advance_collectives(kNoTime);  // ends the collectives that are queued
}

void Queue::look_transfers(TimePoint now) {
  try {
    if (pending() && !messages_.idle()) {
      failure_.throw_if_any();
      messages_.look(now);
    }
    if (pending()) end_transfers(now, std::nullopt);
  } catch (...) {
    fail_transfers(messages_.caught_error());
  }
  const TimePoint next =
      pending() ? messages_.next_look(now, messages_.first_deadline(now)) : TimePoint::max();
  transfer_look_.store(next, std::memory_order_relaxed);
}

bool Queue::in_callback() const noexcept {
  const sync::ThreadId here = sync::this_thread();
  if (callback_thread_.load(std::memory_order_relaxed) == here) return true;
  if (unended_.load(std::memory_order_relaxed) < kOneGroup) return false;
  const std::lock_guard lock(mutex_);
  return std::find(group_threads_.begin(), group_threads_.end(), here) != group_threads_.end();
}

void Queue::refuse_in_callback() const {
  if (in_callback())
    throw Error(ErrorKind::usage,
                "a callback of this communicator's work waits for it: start asynchronous calls "
                "there, and wait elsewhere");
}

OperationRef Queue::operation_of_group() {
  OperationRef operation = pool_->take(&owner_, {});
  const std::lock_guard lock(mutex_);
  group_threads_.reserve((unended_.load(std::memory_order_relaxed) & ~kCaptures) / kOneGroup + 1);
  unended_.fetch_add(kOneGroup, std::memory_order_relaxed);
  return operation;
}

void Queue::group_ends() {
  const std::lock_guard lock(mutex_);
  group_threads_.push_back(sync::this_thread());
}

void Queue::group_ended() {
  const std::lock_guard alive(mutex_);
  group_threads_.erase(
      std::find(group_threads_.begin(), group_threads_.end(), sync::this_thread()));
  unended_.fetch_sub(kOneGroup, std::memory_order_seq_cst);
  parts_.wake_sleepers();
}

void Queue::await_threads() const noexcept {
  assert(empty());
  pool_->await_waiters();
  const std::lock_guard last_group(mutex_);  // the thread that ended it has released the mutex
}

}  // namespace tutti
