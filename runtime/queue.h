// The asynchronous operations of a communicator: who is under way, who waits, and how they end.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "common/sync.h"
#include "runtime/collectives.h"
#include "runtime/failure.h"
#include "runtime/messages.h"
#include "runtime/operation.h"
#include "runtime/planner.h"

namespace tutti {

/// A state machine: collectives run one after the other, sends and receives side by side. It never
/// waits and asks no clock: time is handed in.
///
/// Threads. The calling thread makes operations and pushes them. Whoever owns the communicator's
/// engine advances them, and so runs their callbacks. pending() is for any thread: once it is false
/// the owner touches the engine no more, and the calling thread may. A group's own operation is
/// ended by whoever ends its last part.
class Queue {
 public:
  /// For advance(), where needs_time() is false.
  static constexpr TimePoint kNoTime = TimePoint::min();

  /// All outlive it.
  Queue(CommunicatorImpl& owner, const CommunicatorParts& parts, CallPlanner& planner,
        Collectives& collectives, Messages& messages, Failure& failure);

  // The calling thread.

  /// `blocks` are those of a variable call that brings none.
  OperationRef operation_of(PlannedCall call, const BlockTable& blocks);
  OperationRef operation_of(const TransferCall& call);
  void push(const OperationRef& operation);

  /// Any thread: whether there is an operation that has not ended.
  bool pending() const noexcept { return pending_.load(std::memory_order_seq_cst) > 0; }
  /// Any thread: whether nothing is pending, and no group's operation either.
  bool empty() const noexcept { return !pending() && groups_.load(std::memory_order_acquire) == 0; }
  /// Any thread: when look() is due.
  TimePoint next_look() const noexcept {
    return std::min(collective_look_.load(std::memory_order_seq_cst),
                    transfer_look_.load(std::memory_order_seq_cst));
  }

  // The engine's owner.

  /// Whether advance() would begin an operation, whose deadline is counted from then.
  bool needs_time() const noexcept {
    return (!under_way_ && collectives_queue_.front() != nullptr) ||
           transfer_queue_.front() != nullptr;
  }
  /// Does what can be done now, and begins what can begin at `now`. Returns true when it is to be
  /// called again at once, because something is to begin at a later time.
  bool advance(TimePoint now);
  /// Does what polling does not: takes news of peers, and ends what cannot end by itself.
  void look(TimePoint now);
  /// Whether a collective has begun and not ended.
  bool under_way() const noexcept { return under_way_; }

  // Callbacks.

  /// Whether the calling thread runs a callback of one of these operations.
  bool in_callback() const noexcept;
  /// Throws `usage` in a callback, which would wait for itself.
  void refuse_in_callback() const;

  // For groups.

  /// An operation that stands for a group's, and keeps the communicator until group_ended(), from
  /// any thread.
  OperationRef operation_of_group();
  /// The calling thread is about to run the callbacks of such an operation, perhaps while it
  /// advances another communicator.
  void group_ends();
  void group_ended();

  // The communicator's end.

  /// It has begun.
  void abandon() noexcept { pool_->abandon(); }
  /// With empty(): returns once no other thread is inside.
  void await_threads() const noexcept;

 private:
  void begin(Operation& operation, TimePoint now);
  bool advance_collectives(TimePoint now);
  void look_collective(TimePoint now);
  bool fail_collective();
  void end_front(std::optional<Error> error);
  bool advance_transfers(TimePoint now);
  void start_transfers(TimePoint now);
  bool end_transfers(TimePoint now, const std::optional<Error>& error);
  void fail_transfers(const Error& error);
  void look_transfers(TimePoint now);
  void end(Operation& operation, std::optional<Error> error);
  void one_less_pending();

  CommunicatorImpl& owner_;
  const CommunicatorParts& parts_;
  CallPlanner& planner_;
  Collectives& collectives_;
  Messages& messages_;
  Failure& failure_;

  const std::shared_ptr<OperationPool> pool_ = std::make_shared<OperationPool>();
  OperationQueue collectives_queue_{pool_->take(nullptr, {})};
  OperationQueue transfer_queue_{pool_->take(nullptr, {})};
  bool under_way_ = false;  // engine's owner: the front of collectives_queue_
  sync::Atomic<TimePoint> collective_look_{TimePoint::max()};
  sync::Atomic<TimePoint> transfer_look_{TimePoint::max()};
  sync::Atomic<int> pending_{0};
  sync::Atomic<sync::ThreadId> callback_thread_{};  // runs callbacks, and so owns the engine
  sync::Atomic<int> groups_{0};                     // operations that stand for groups
  mutable sync::Mutex mutex_;
  std::vector<sync::ThreadId> group_threads_;  // run their callbacks; guarded by mutex_
};

}  // namespace tutti
