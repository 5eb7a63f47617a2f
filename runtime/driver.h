// Drives the parts of a communicator: in the calling thread, in the background thread, and in every
// thread that waits. Threads meet and wait here.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/sync.h"
#include "runtime/queue.h"

namespace tutti {

/// Advances a communicator's operations, waits for them, and holds the lock that they need.
/// Threads: a blocking call with nothing pending runs in the caller's thread without a lock, since
/// only one thread at a time may call a communicator. Once operations are pending, the thread that
/// advances them (the background thread, any waiter, the next blocking call) holds the engine's
/// lock while it does so and while it runs callbacks.
class Driver final : public Progressable {
 public:
  /// All arguments outlive the driver.
  Driver(const CommunicatorParts& parts, Collectives& collectives, Messages& messages, Queue& queue,
         Failure& failure);
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// Executes a call; nothing else is pending, so the engine is free. Throws the error that ended
  /// the call, with which the communicator has failed. For the calling thread.
  void execute(BoundProgram& bound, CallBuffers&& buffers, std::chrono::milliseconds timeout) {
    count_call();
    try {
      if (collectives_.begin(bound, buffers, true, policy_.polls)) return;  // most short calls
    } catch (...) {
      fail_call();
    }
    await_call(timeout);
  }
  /// Waits in the same way for sends and receives, until the transport has sent what was posted.
  void await_transfers(std::span<Transfer* const> transfers);

  /// Has the background thread advance this communicator from now on. For the calling thread.
  void join_background();
  /// Adds `operation` to its queue, and tells the background thread. For the calling thread.
  void enqueue(const OperationRef& operation);
  /// Advances pending operations until `operation` is done or `limit` has passed; returns false in
  /// the latter case. Throws `usage` in a callback, which would wait for itself.
  bool await_operation(const Operation& operation, TimePoint limit);
  /// Advances operations until none is pending; returns false if `limit` has passed before.
  bool drain(TimePoint limit = TimePoint::max());

  /// Calls `step` with the current time until it returns true, and waits between calls until
  /// `next_step()` at the latest. For the calling thread.
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

  /// Waits until `attempt` returns true, for something else than calls of this communicator, for
  /// which the ranks need its connections. `look` is called now and then, with the current time.
  /// Throws the communicator's failure, and what the two throw. For the calling thread.
  void await_peers(const std::function<bool()>& attempt,
                   const std::function<void(TimePoint)>& look);

  /// Nobody else advances the communicator while the lock is held.
  std::unique_lock<sync::Mutex> own_engine() { return std::unique_lock(engine_mutex_); }
  /// Does the same if no other thread holds the lock.
  std::unique_lock<sync::Mutex> try_own_engine() {
    return std::unique_lock(engine_mutex_, std::try_to_lock);
  }
  /// Unregisters the driver from the runtime. Nothing is pending, and nothing will be.
  void leave() noexcept;

  // Progressable
  bool pending() const noexcept override { return queue_.pending(); }
  bool awaited() const noexcept override { return waiting_.load(std::memory_order_relaxed) > 0; }
  bool advance_pending() noexcept override;
  void look_pending() noexcept override;
  TimePoint next_deadline() const override { return queue_.next_look(); }
  Sleepers& sleepers() override;
  const Doorbell& doorbell() const override { return *parts_.shared->doorbell; }
  std::span<const int> wait_fds() const override { return wait_fds_; }
  void arm() override { parts_.transport->arm(); }
  void disarm() noexcept override { parts_.transport->disarm(); }
  void background_progress() noexcept override;

 private:
  /// While an object of this class exists, every event of the transport makes its descriptor
  /// readable.
  class Armed {
   public:
    explicit Armed(Transport& slept_over) : transport_(slept_over) { transport_.arm(); }
    ~Armed() { transport_.disarm(); }
    Armed(const Armed&) = delete;
    Armed& operator=(const Armed&) = delete;

   private:
    Transport& transport_;
  };
  /// Counts this thread among those that wait for operations.
  class Waiting {
   public:
    explicit Waiting(sync::Atomic<int>& waiting) noexcept : waiting_(waiting) {
      waiting_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Waiting() { waiting_.fetch_sub(1, std::memory_order_relaxed); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    sync::Atomic<int>& waiting_;
  };

  const Clock& clock() const noexcept { return parts_.runtime->clock(); }
  /// Calls that end at once never look at peers that they do not need, so that now and then one
  /// does: a communicator that a peer has aborted ends on every rank. Throws the failure. For the
  /// calling thread, while nothing is pending.
  void count_call() {
    if (++calls_ % kCallsPerLook != 0) [[likely]]
      return;
    failure_.notice_failed_peers();
    failure_.throw_if_any();
  }
  void advance_owned();
  bool owned_here() const noexcept;
  void drive_others();
  void pause_until(TimePoint time);
  TimePoint next_check(TimePoint deadline);
  void await_call(std::chrono::milliseconds timeout);
  [[noreturn]] void fail_call();
  Error explain_thrown();
  template <typename Attempt>
  bool sleep(Attempt&& attempt, TimePoint deadline);
  template <typename Done>
  bool advance_until(Done&& done, TimePoint limit);

  static constexpr std::uint32_t kCallsPerLook = 256, kAdvancesPerLook = 4096;

  const CommunicatorParts& parts_;
  Collectives& collectives_;
  Messages& messages_;
  Queue& queue_;
  Failure& failure_;
  const WaitPolicy policy_;
  const bool wants_background_progress_;  // see Transport::background_progress()
  bool registered_ = false;     // whether the runtime advances it; used by the calling thread alone
  std::uint32_t calls_ = 0;     // of execute() and await_transfers()
  std::uint32_t advances_ = 0;  // of advance_owned(); guarded by engine_mutex_
  sync::Atomic<int> waiting_{0};     // threads in advance_until()
  sync::Mutex engine_mutex_;         // guards the engine, the queue, collectives and messages while
                                     // operations are pending
  const std::vector<int> wait_fds_;  // of the transport, for sleepers
};

}  // namespace tutti
