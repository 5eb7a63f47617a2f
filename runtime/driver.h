// Drives the parts of a communicator: in the calling thread, in the background thread, and in
// whatever thread waits. This is where threads meet, and where they wait.
#pragma once

#include <chrono>
#include <span>

#include "common/sync.h"
#include "runtime/queue.h"

namespace tutti {

/// Threads. A blocking call with nothing pending runs in the caller's thread without a lock: the
/// contract is one calling thread at a time. Once operations are pending, whoever advances them
/// (the background thread, any waiter, the next blocking call) holds the engine while it does, and
/// while it runs callbacks.
class Driver final : public Progressable {
 public:
  /// All outlive it.
  Driver(const CommunicatorParts& parts, Collectives& collectives, Messages& messages, Queue& queue,
         Failure& failure);
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// The calling thread: a blocking call begins, which asks `interrupted` (may be null) whether it
  /// is to end.
  void heed(bool (*interrupted)()) noexcept { interrupted_ = interrupted; }

  /// The calling thread, with nothing pending: advances what was begun until it is done. Throws the
  /// error that ended it, which the communicator has failed with.
  void await_call(std::chrono::milliseconds timeout);
  /// The same for messages, until the transport has sent what was posted.
  void await_transfers(std::span<Transfer* const> transfers);

  /// The calling thread: `operation` goes to its queue, and the background thread hears of it.
  void enqueue(const OperationRef& operation);
  /// Helps until `operation` is done or `limit` has passed; returns false if it has. Throws `usage`
  /// in a callback, which would wait for itself.
  bool help(const Operation& operation, TimePoint limit);
  /// The same without a limit, for a blocking call that may be interrupted.
  void help_heeding(const Operation& operation);
  /// Helps until nothing is pending; returns false if `limit` has passed before.
  bool drain(TimePoint limit = TimePoint::max());

  /// The calling thread: calls `step` with the time until it returns true, each time at
  /// `next_step()` at the latest.
  template <typename Step, typename NextStep>
  void await_steps(Step&& step, NextStep&& next_step) {
    bool done = false;
    wait(
        WaitPolicy{0, 0, std::chrono::microseconds{0}}, clock(), [&] { return done; },
        [&] { done = done || step(clock().now()); },
        [&](auto&&) {
          pause_until(next_step());
          return done;
        });
  }

  /// Nobody else advances the communicator while the lock is held.
  std::unique_lock<sync::Mutex> own_engine() { return std::unique_lock(engine_mutex_); }
  /// Nothing is pending, and nothing will be: the runtime forgets it.
  void leave() noexcept;

  // Progressable
  bool pending() const noexcept override { return queue_.pending(); }
  bool advance_pending() noexcept override;
  void look_pending() noexcept override;
  TimePoint next_deadline() const override { return queue_.next_look(); }
  sync::Atomic<std::uint32_t>& sleepers() override;
  const Doorbell& doorbell() const override { return *parts_.shared->doorbell; }
  int wait_fd() const override { return parts_.transport->wait_fd(); }
  void arm() override { parts_.transport->arm(); }
  void disarm() noexcept override { parts_.transport->disarm(); }
  void background_progress() noexcept override;

 private:
  const Clock& clock() const noexcept { return parts_.runtime->clock(); }
  void advance_owned();
  bool owned_here() const noexcept;
  void drive_others();
  void pause_until(TimePoint time);
  TimePoint next_heed(TimePoint deadline);
  Error explain_thrown();
  template <typename Attempt>
  bool sleep(Attempt&& attempt, TimePoint deadline);
  template <typename Done>
  bool help_until(Done&& done, TimePoint limit);

  const CommunicatorParts& parts_;
  Collectives& collectives_;
  Messages& messages_;
  Queue& queue_;
  Failure& failure_;
  const WaitPolicy policy_;
  const bool wants_background_progress_;  // see Transport::background_progress()
  bool registered_ = false;               // calling thread only: the runtime advances it
  bool (*interrupted_)() = nullptr;       // of the blocking call; calling thread only
  sync::Mutex engine_mutex_;              // see above
};

}  // namespace tutti
