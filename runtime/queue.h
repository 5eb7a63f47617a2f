// The asynchronous operations of a communicator: which are under way, which wait, and how they end.
#pragma once

#include <cstdint>
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

/// A state machine that runs collectives one after the other, and sends and receives side by side.
/// It never waits and reads no clock: its callers pass the time.
///
/// Threads: the calling thread makes operations and pushes them. The owner of the communicator's
/// engine advances them and runs their callbacks. Any thread may call pending(): once it returns
/// false, the owner does not touch the engine any more, and the calling thread may. The operation
/// that stands for a group is ended by the thread that ends the last of the group's calls.
class Queue {
 public:
  /// The time to pass to advance() when needs_time() is false.
  static constexpr TimePoint kNoTime = TimePoint::min();

  /// All arguments outlive the queue.
  Queue(CommunicatorImpl& owner, const CommunicatorParts& parts, CallPlanner& planner,
        Collectives& collectives, Messages& messages, Failure& failure);

  // Functions for the calling thread.

  /// `blocks` are the blocks of a variable call, used unless `call` has some of its own.
  OperationRef operation_of(PlannedCall call, const BlockTable& blocks);
  OperationRef operation_of(const TransferCall& call);
  void push(const OperationRef& operation);
  /// Returns whether the calling thread may not use the engine without its lock: operations are
  /// pending, or graphs hold calls, which may begin at any time.
  bool engine_in_use() const noexcept {
    return (unended_.load(std::memory_order_seq_cst) & (kCaptures | (kOneGroup - 1))) != 0;
  }
  /// Returns whether a blocking call has to wait behind operations that are pending. Throws `usage`
  /// in a callback, which would wait for itself.
  bool others_first() const {
    if (unended_.load(std::memory_order_seq_cst) == 0) [[likely]]
      return false;
    refuse_in_callback();
    return engine_in_use();
  }

  /// Returns whether there is an operation that has not ended. Any thread may call it.
  bool pending() const noexcept {
    return (unended_.load(std::memory_order_seq_cst) & (kOneGroup - 1)) > 0;
  }
  /// Returns whether nothing is pending, and no operation stands for a group. Any thread may call
  /// it.
  bool empty() const noexcept {
    return (unended_.load(std::memory_order_seq_cst) & ~kCaptures) == 0;
  }
  /// Returns when look() is due. Any thread may call it.
  TimePoint next_look() const noexcept {
    return std::min(collective_look_.load(std::memory_order_seq_cst),
                    transfer_look_.load(std::memory_order_seq_cst));
  }

  // Functions for graphs. Any thread may call them.

  /// Says whether graphs hold calls.
  void set_captures(bool any) noexcept;
  /// Starts a captured call once more. It comes before the calls that wait for their streams.
  void replay(Operation& operation) noexcept;
  /// A captured call was started whose last start has not ended: the communicator fails.
  void fail_overlap() noexcept { overlapped_.store(true, std::memory_order_seq_cst); }

  // Functions for the owner of the engine.

  /// Returns whether advance() would begin an operation, which needs the time for its deadline.
  bool needs_time() const noexcept {
    return (!under_way_ && (collectives_queue_.front() != nullptr || replays_.first != nullptr)) ||
           replayed_.load(std::memory_order_relaxed) != nullptr || transfers_wait();
  }
  /// Does what can be done now, and begins what can begin at `now`. Returns true when it should be
  /// called again at once with a new time, because another operation can begin.
  bool advance(TimePoint now);
  /// Does what polling does not: it takes news of peers, and ends operations that cannot end by
  /// themselves.
  void look(TimePoint now);
  /// Returns whether a collective has begun and not ended.
  bool under_way() const noexcept { return under_way_; }

  // Functions about callbacks.

  /// Returns whether the thread that calls this runs a callback of one of these operations.
  bool in_callback() const noexcept;
  /// Throws `usage` in a callback, which would wait for itself.
  void refuse_in_callback() const;

  // Functions for groups.

  /// Returns an operation that stands for all calls of a group. It keeps the communicator alive
  /// until group_ended(), which any thread may call.
  OperationRef operation_of_group();
  /// Records that this thread is about to run the callbacks of such an operation, perhaps while it
  /// advances another communicator.
  void group_ends();
  void group_ended();

  // Functions for the communicator's destructor.

  /// Marks that the destruction of the communicator has begun.
  void abandon() noexcept { pool_->abandon(); }
  /// Returns once no graph can start a call any more, which was held by one before abandon().
  void await_graphs() const noexcept { pool_->await_waiters(); }
  /// Returns once no other thread is inside this object; empty() must hold.
  void await_threads() const noexcept;

 private:
  void begin(Operation& operation, TimePoint now);
  bool await_stream(Operation& operation, TimePoint now);
  TimePoint next_look_at(const Operation& operation, TimePoint now);
  Operation* next_collective() const noexcept;
  bool advance_collectives(TimePoint now);
  void look_collective(TimePoint now);
  bool fail_collective();
  void end_current(std::optional<Error> error);
  void await_leaving(Operation& operation, std::optional<Error> error);
  void end_left();
  void take_replays() noexcept;
  void end_replay(Operation& operation, const std::optional<Error>& error);
  bool advance_transfers(TimePoint now);
  /// Operations in the order in which they begin.
  struct List {
    Operation* first = nullptr;
    Operation** last = &first;
    void push(Operation& operation) noexcept;
    Operation* pop() noexcept;
  };
  bool transfers_wait() const noexcept {
    return transfer_queue_.front() != nullptr || unready_[0].first != nullptr ||
           unready_[1].first != nullptr || transfer_replays_.first != nullptr;
  }
  bool starts_transfers() const noexcept;
  void start_transfers(TimePoint now);
  void start_ready(List& unready, TimePoint now);
  static void insert_replay(List& unready, Operation& operation) noexcept;
  void start(Operation& operation, TimePoint now);
  void end_transfer(Operation& operation, std::optional<Error> error);
  bool end_transfers(TimePoint now, const std::optional<Error>& error);
  void fail_transfers(const Error& found);
  void look_transfers(TimePoint now);
  void end(Operation& operation, std::optional<Error> error);
  void one_less_pending();

  /// How often the queue looks how far a device has come.
  static constexpr std::chrono::microseconds kDevicePoll{100};

  CommunicatorImpl& owner_;
  const CommunicatorParts& parts_;
  CallPlanner& planner_;
  Collectives& collectives_;
  Messages& messages_;
  Failure& failure_;

  const std::shared_ptr<OperationPool> pool_ = std::make_shared<OperationPool>();
  OperationQueue collectives_queue_{pool_->take(nullptr, {})};
  OperationQueue transfer_queue_{pool_->take(nullptr, {})};
  // Transfers that have not begun, because the first waits for its stream, by direction; used by
  // the engine's owner.
  List unready_[2];
  // The captured calls that graphs have started, the last one first.
  sync::Atomic<Operation*> replayed_{nullptr};
  sync::Atomic<bool> overlapped_{false};
  // These lists hold the captured calls that the owner of the engine has taken from replayed_.
  List replays_, transfer_replays_;
  bool replay_failed_ = false;  // whether the log says so; used by the engine's owner
  // The collective that comes next, and whether it has begun; used by the engine's owner.
  Operation* current_ = nullptr;
  bool under_way_ = false;
  // Calls that have ended, whose streams still copy their results to a GPU; used by the engine's
  // owner.
  Operation* leaving_ = nullptr;
  sync::Atomic<TimePoint> collective_look_{TimePoint::max()};
  sync::Atomic<TimePoint> transfer_look_{TimePoint::max()};
  // The number of operations that are pending, and kOneGroup for each operation that stands for a
  // group: a blocking call asks for both with one load.
  static constexpr std::uint64_t kOneGroup = std::uint64_t{1} << 32;
  // This bit is set while graphs hold calls.
  static constexpr std::uint64_t kCaptures = std::uint64_t{1} << 63;
  sync::Atomic<std::uint64_t> unended_{0};
  // The thread that runs callbacks, and so owns the engine.
  sync::Atomic<sync::ThreadId> callback_thread_{};
  mutable sync::Mutex mutex_;
  // Threads that run callbacks of groups; guarded by mutex_.
  std::vector<sync::ThreadId> group_threads_;
};

}  // namespace tutti
