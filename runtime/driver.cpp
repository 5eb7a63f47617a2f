#include "runtime/driver.h"

#include <algorithm>
#include <cassert>
#include <optional>

#include "common/interruptible.h"
#include "common/sync.h"

namespace tutti {
namespace {

// In a runtime without threads, no other rank makes progress while this thread polls, so one poll
// is enough.
WaitPolicy policy_of(const CommunicatorParts& parts) {
  if (!parts.runtime->has_thread()) return {1, 0, std::chrono::microseconds{0}};
  return wait_policy(parts.machine_ranks, parts.machine_cores, parts.runtime->config().spin_polls);
}

}  // namespace

Driver::Driver(const CommunicatorParts& parts, Collectives& collectives, Messages& messages,
               Queue& queue, Failure& failure)
    : parts_(parts),
      collectives_(collectives),
      messages_(messages),
      queue_(queue),
      failure_(failure),
      policy_(policy_of(parts)),
      wants_background_progress_(parts.transport->background_progress()),
      wait_fds_(parts.transport->wait_fds()) {
  SharedEndpoint& shared = *parts_.shared;
  // The first wait that sleeps should not have to make a sleeper.
  if (shared.communicators == 0)
    shared.sleepers.give_back(shared.sleepers.take(shared.doorbell->fd(), wait_fds_));
  // This is the last step that may throw, because the runtime may call this object from here on.
  if (wants_background_progress_) parts_.runtime->add_background(*this);
  ++shared.communicators;
}

void Driver::leave() noexcept {
  assert(queue_.empty() && parts_.shared->communicators > 0);
  if (registered_ || wants_background_progress_) parts_.runtime->remove(*this);
  --parts_.shared->communicators;
}

Sleepers& Driver::sleepers() { return parts_.transport->own_status_page().sleepers; }

// In a runtime without threads, this thread also drives the communicators for which it waits. The
// Turn defers the tasks of run_apart(), which may depend on the end of this wait.
void Driver::drive_others() {
  const Runtime::Turn turn(*parts_.runtime);
  parts_.runtime->step();
}

template <typename Attempt>
bool Driver::sleep(Attempt&& attempt, TimePoint deadline) {
  if (!parts_.runtime->has_thread()) [[unlikely]] {
    drive_others();
    return attempt();
  }
  SharedEndpoint& shared = *parts_.shared;
  auto sleeper = shared.sleepers.take(shared.doorbell->fd(), wait_fds_);
  bool ended = false;
  {
    const Announced announced(sleepers(), *shared.doorbell);
    const Armed armed(*parts_.transport);
    ended = attempt();
    if (!ended && !failure_.exists()) sleeper->sleep_until(deadline, clock());
  }
  shared.sleepers.give_back(std::move(sleeper));
  return ended;
}

void Driver::pause_until(TimePoint time) {
  if (!parts_.runtime->has_thread()) return drive_others();
  Sleeper().sleep_until(time, clock());  // no doorbell is watched
}

// Continues a call that the first polls did not complete.
void Driver::await_call(std::chrono::milliseconds timeout) {
  // Set at the first look, so that a short call never reads the clock.
  std::optional<TimePoint> deadline;
  try {
    WaitPolicy policy = policy_;
    policy.polls = 0;
    wait(
        policy, clock(), [this] { return collectives_.advance(1); },
        [&] {
          failure_.throw_if_any();
          const TimePoint now = clock().now();
          if (!deadline) deadline = now + timeout;
          collectives_.look(now, *deadline, timeout);
        },
        [&](auto& attempt) {
          return sleep(attempt, collectives_.next_look(clock().now(), next_check(*deadline)));
        });
  } catch (...) {
    fail_call();
  }
}

// Called in an exception handler for what begin() or advance() threw.
void Driver::fail_call() {
  collectives_.stop();
  throw failure_.set(explain_thrown());
}

// Called in an exception handler. Returns the error for the exception, for whose message a peer may
// have to be asked.
Error Driver::explain_thrown() {
  std::optional<Error> error = collectives_.explain();
  if (error) return *error;
  const auto look = [&] {
    try {
      if (!error) collectives_.look(clock().now(), TimePoint::max(), Nanoseconds::zero());
    } catch (const Error& explained) {
      error = explained;
    }
  };
  wait(
      policy_, clock(), [&] { return error.has_value(); }, look,
      [&](auto& attempt) {
        return sleep(attempt, collectives_.next_look(clock().now(), TimePoint::max()));
      });
  return *error;
}

void Driver::await_transfers(std::span<Transfer* const> transfers) {
  assert(!transfers.empty());
  count_call();
  const Transfer* awaited = transfers.size() == 1 ? transfers.front() : nullptr;
  TimePoint deadline = TimePoint::max();
  const auto look = [&] {
    const TimePoint now = clock().now();
    if (deadline == TimePoint::max())  // set at the first look, as in await_call()
      for (Transfer* transfer : transfers) {
        messages_.set_deadline(*transfer, now + transfer->call.timeout);
        deadline = std::min(deadline, transfer->deadline);
      }
    failure_.throw_if_any();
    messages_.look(now);
  };
  wait(
      policy_, clock(),
      [&] {
        messages_.advance(awaited);
        return messages_.idle() && (collectives_.all_left() || clock().now() >= deadline);
      },
      look,
      [&](auto& attempt) {
        return sleep(attempt, messages_.next_look(clock().now(), next_check(deadline)));
      });
}

void Driver::await_peers(const std::function<bool()>& attempt,
                         const std::function<void(TimePoint)>& look) {
  // Without a descriptor that announces news, the peers are threads of this process, which come
  // while this one yields; otherwise a sleep ends sooner where other processes use the cores.
  const int yields = wait_fds_.empty() ? policy_.yields : 0;
  // Another thread of the process may take the news for which this one sleeps.
  constexpr std::chrono::milliseconds kLookAgain{10};
  wait(
      WaitPolicy{0, yields, std::chrono::microseconds{0}}, clock(), attempt,
      [&] {
        failure_.throw_if_any();
        look(clock().now());
      },
      [&](auto& last_look) { return sleep(last_look, next_check(clock().now() + kLookAgain)); });
}

// Returns until when the thread may sleep before it has to ask again whether it is interrupted.
TimePoint Driver::next_check(TimePoint deadline) {
  constexpr std::chrono::milliseconds kEvery{100};
  if (!can_be_interrupted()) return deadline;
  if (is_interrupted()) failure_.abort("interrupted");
  return std::min(deadline, clock().now() + kEvery);
}

void Driver::join_background() {
  if (!registered_) parts_.runtime->add(*this);
  registered_ = true;
}

void Driver::enqueue(const OperationRef& operation) {
  join_background();
  queue_.push(operation);
  parts_.runtime->poke();
}

// The caller holds the engine's lock. Once nothing is pending, this function touches only the
// queue.
void Driver::advance_owned() {
  if (++advances_ % kAdvancesPerLook == 0) [[unlikely]]
    failure_.notice_failed_peers();
  while (queue_.advance(queue_.needs_time() ? clock().now() : Queue::kNoTime)) continue;
}

// Returns whether this thread runs a callback in a runtime without threads, and so holds the lock
// already.
bool Driver::owned_here() const noexcept {
  return !parts_.runtime->has_thread() && queue_.in_callback();
}

bool Driver::advance_pending() noexcept {
  if (owned_here()) [[unlikely]]
    return false;
  const Runtime::Turn turn(*parts_.runtime);
  const std::unique_lock lock(engine_mutex_, std::try_to_lock);
  if (lock) advance_owned();
  return lock.owns_lock();
}

void Driver::look_pending() noexcept {
  if (owned_here()) [[unlikely]]
    return;
  const Runtime::Turn turn(*parts_.runtime);
  const std::unique_lock lock(engine_mutex_, std::try_to_lock);
  if (lock) queue_.look(clock().now());
}

void Driver::background_progress() noexcept {
  try {
    parts_.transport->background_progress();
  } catch (...) {  // the next call meets the same error, and reports it to its caller
    return;
  }
}

template <typename Done>
bool Driver::advance_until(Done&& done, TimePoint limit) {
  bool expired = false;
  const Waiting waiting(waiting_);
  wait(
      policy_, clock(),
      [&] {
        if (!done()) advance_pending();
        return done() || expired;
      },
      [&] {
        expired = clock().now() >= limit;
        if (!done()) look_pending();
      },
      [&](auto& attempt) { return sleep(attempt, next_check(std::min(limit, next_deadline()))); });
  if (done()) return true;
  parts_.runtime->poke();  // from here on, the background thread alone watches the deadline
  return false;
}

bool Driver::await_operation(const Operation& operation, TimePoint limit) {
  queue_.refuse_in_callback();
  return advance_until([&] { return operation.done(); }, limit);
}

bool Driver::drain(TimePoint limit) {
  const auto drained = [this] { return queue_.empty(); };
  return drained() || advance_until(drained, limit);
}

}  // namespace tutti
