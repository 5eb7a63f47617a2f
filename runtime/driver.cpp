#include "runtime/driver.h"

#include <algorithm>
#include <optional>

#include "common/sync.h"

namespace tutti {
namespace {

/// The transport's descriptor is readable for all its news while this lives.
class Armed {
 public:
  explicit Armed(Transport& slept_over) : transport_(slept_over) { transport_.arm(); }
  ~Armed() { transport_.disarm(); }
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;

 private:
  Transport& transport_;
};

// In a runtime without threads nobody else makes progress while this thread polls.
WaitPolicy policy_of(const CommunicatorParts& parts) {
  if (!parts.runtime->has_thread()) return {1, 0, std::chrono::microseconds{0}};
  return wait_policy(parts.shared->ranks, parts.shared->cores, parts.runtime->config().spin_polls);
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
      wants_background_progress_(parts.transport->background_progress()) {
  SharedEndpoint& shared = *parts_.shared;
  if (shared.communicators == 0)  // the first wait that comes to sleep need not make one
    shared.sleepers.give_back(
        shared.sleepers.take(shared.doorbell->fd(), parts_.transport->wait_fd()));
  // This is the last step that may throw: the runtime calls what it was given, constructed or not.
  if (wants_background_progress_) parts_.runtime->add_background(*this);
  ++shared.communicators;
}

void Driver::leave() noexcept {
  if (registered_ || wants_background_progress_) parts_.runtime->remove(*this);
  --parts_.shared->communicators;
}

sync::Atomic<std::uint32_t>& Driver::sleepers() {
  return parts_.transport->own_status_page().sleepers;
}

// Without threads, this thread drives those for whom it waits, too. What is to run apart may wait
// for this wait.
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
  auto sleeper = shared.sleepers.take(shared.doorbell->fd(), parts_.transport->wait_fd());
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
  Sleeper().sleep_until(time, clock());  // nobody rings
}

void Driver::await_call(std::chrono::milliseconds timeout) {
  std::optional<TimePoint>
      deadline;  // counted from the first look, so that a short call never reads the clock
  try {
    wait(
        policy_, clock(), [this] { return collectives_.advance(); },
        [&] {
          failure_.throw_if_any();
          const TimePoint now = clock().now();
          if (!deadline) deadline = now + timeout;
          collectives_.look(now, *deadline, timeout);
        },
        [&](auto& attempt) {
          return sleep(attempt, collectives_.next_look(clock().now(), next_heed(*deadline)));
        });
  } catch (...) {
    collectives_.stop();
    const Error error = explain_thrown();
    failure_.set(error);
    throw error;
  }
}

// In a handler: the error for what is being handled, for whose words a peer may have to be asked.
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
  const Transfer* awaited = transfers.size() == 1 ? transfers.front() : nullptr;
  TimePoint deadline = TimePoint::max();
  const auto look = [&] {
    const TimePoint now = clock().now();
    if (deadline == TimePoint::max())  // from the first look, as for collectives
      for (Transfer* transfer : transfers) {
        transfer->deadline = now + transfer->call.timeout;
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
        return sleep(attempt, messages_.next_look(clock().now(), next_heed(deadline)));
      });
}

// Until when a blocking call may sleep before it asks again whether it is interrupted.
TimePoint Driver::next_heed(TimePoint deadline) {
  constexpr std::chrono::milliseconds kEvery{100};
  if (interrupted_ == nullptr) return deadline;
  if (interrupted_()) failure_.abort("interrupted");
  return std::min(deadline, clock().now() + kEvery);
}

void Driver::enqueue(const OperationRef& operation) {
  if (!registered_) {
    parts_.runtime->add(*this);
    registered_ = true;
  }
  queue_.push(operation);
  parts_.runtime->poke();
}

// With the engine. Once nothing is pending it touches only the queue.
void Driver::advance_owned() {
  while (queue_.advance(queue_.needs_time() ? clock().now() : Queue::kNoTime)) continue;
}

// Without threads the lock is this thread's own while a callback runs.
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
  } catch (...) {  // the next call meets it, too, and has whom to tell
    return;
  }
}

template <typename Done>
bool Driver::help_until(Done&& done, TimePoint limit) {
  bool expired = false;
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
      [&](auto& attempt) { return sleep(attempt, std::min(limit, next_deadline())); });
  if (done()) return true;
  parts_.runtime->poke();  // the background thread alone minds the deadline now
  return false;
}

bool Driver::help(const Operation& operation, TimePoint limit) {
  queue_.refuse_in_callback();
  return help_until([&] { return operation.done(); }, limit);
}

void Driver::help_heeding(const Operation& operation) {
  while (!help(operation, next_heed(TimePoint::max()))) continue;
}

bool Driver::drain(TimePoint limit) {
  const auto drained = [this] { return queue_.empty(); };
  return drained() || help_until(drained, limit);
}

}  // namespace tutti
