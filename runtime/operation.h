// An asynchronous call: counted by those who hold it, and used again, so that in the steady state a
// Work costs no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <tutti/tutti.hpp>

#include "common/clock.h"
#include "common/sync.h"
#include "runtime/engine/program_cache.h"
#include "runtime/p2p/transfer.h"

namespace tutti {

/// Of all data types.
inline constexpr std::size_t kMostElementBytes = 16;

/// One call, checked, as it waits for its turn or is under way.
struct PlannedCall {
  CallKey key;
  const void* input = nullptr;
  void* output = nullptr;
  std::chrono::milliseconds timeout{0};
  std::size_t result_bytes = 0;
  std::shared_ptr<BoundProgram> program;     ///< If it is known; else looked up by `key`.
  std::shared_ptr<const BlockTable> blocks;  ///< Of a persistent variable call.
  const UserReduction* reduction = nullptr;
  alignas(std::max_align_t) std::array<std::byte, kMostElementBytes> premultiplier{};

  CallExtras extras() const noexcept { return {premultiplier.data(), reduction}; }
};

class OperationPool;

/// Thread-safe but for the public members: these are constant from take() on, or belong to the
/// thread that owns the engine once the call has begun. Aligned so that a C handle has bits for its
/// number.
class alignas(64) Operation {
 public:
  Operation();
  bool done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// Once done.
  const std::optional<Error>& error() const noexcept { return error_; }

  /// Calls `callback` when the call has ended: before done() is true, or at once if it is.
  void then(Work::Callback callback);
  /// The engine's owner: the call has ended, with `error` or well. Runs the callbacks, then done().
  void end(std::optional<Error> error) noexcept;

  const BlockTable& blocks() const noexcept { return call.blocks ? *call.blocks : own_blocks; }
  bool is_transfer() const noexcept { return transfer.operation != nullptr; }

  void hold() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void let_go() noexcept;

  /// Of a group's: ends when `parts` operations have, with the first error.
  void await_parts(int parts) noexcept;
  void part_ended(const Error* error) noexcept;

  /// Whether the destruction of `owner` has not begun. It may begin at any time, unless the
  /// operation was not started yet or a Waiter holds it up.
  bool owner_lives() const noexcept;

  /// While a Waiter exists, the communicator that started the operation is not destroyed, provided
  /// that the operation was not done when the Waiter was made; owner_stays() says which.
  class Waiter {
   public:
    explicit Waiter(const Operation& operation) noexcept;
    ~Waiter();
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    /// Returns false when the operation is done; then the owner may have been destroyed.
    bool owner_stays() const noexcept;

   private:
    const Operation& operation_;
  };

  CommunicatorImpl* owner = nullptr;  ///< Alive until done, if it was started; see Waiter.
  PlannedCall call;
  BlockTable own_blocks;  ///< Of a variable call that is not persistent. Keeps its memory.
  Transfer transfer;      ///< Of a send or receive, in place of `call`.
  TimePoint deadline = TimePoint::max();         ///< Set when `call` begins, not when it is queued.
  sync::Atomic<std::uint32_t> handles_freed{0};  ///< In C, over all its uses: a handle's number.

 private:
  friend class OperationPool;
  friend class OperationQueue;

  static constexpr std::size_t kUsualCallbacks = 2;

  void call_back(const Work::Callback& callback) noexcept;

  std::shared_ptr<OperationPool> pool_;  // while anybody holds it
  sync::Atomic<int> references_{0};
  sync::Atomic<Operation*> next_{nullptr};  // in the pool or a queue
  std::optional<Error> error_;              // written before done_
  sync::Atomic<bool> done_{false};
  sync::Mutex mutex_;
  bool ended_ = false;                     // guarded by mutex_: callbacks_ takes no more
  int parts_ = 0;                          // guarded by mutex_: still awaited
  std::optional<Error> part_error_;        // guarded by mutex_: the first
  std::vector<Work::Callback> callbacks_;  // guarded by mutex_
};

/// Holds an operation. Thread-safe as a shared_ptr is.
class OperationRef {
 public:
  OperationRef() = default;
  explicit OperationRef(Operation* operation) noexcept : operation_(operation) {
    if (operation_ != nullptr) operation_->hold();
  }
  OperationRef(const OperationRef& other) noexcept : OperationRef(other.operation_) {}
  OperationRef(OperationRef&& other) noexcept
      : operation_(std::exchange(other.operation_, nullptr)) {}
  OperationRef& operator=(OperationRef other) noexcept {
    std::swap(operation_, other.operation_);
    return *this;
  }
  ~OperationRef() {
    if (operation_ != nullptr) operation_->let_go();
  }

  Operation* get() const noexcept { return operation_; }
  Operation* operator->() const noexcept { return operation_; }
  Operation& operator*() const noexcept { return *operation_; }
  explicit operator bool() const noexcept { return operation_ != nullptr; }

 private:
  Operation* operation_ = nullptr;
};

/// Operations of one communicator that nobody holds: taken by the calling thread, given back by
/// any, without a lock. Outlives the communicator while a Work of it does.
class OperationPool : public std::enable_shared_from_this<OperationPool> {
 public:
  OperationPool() = default;
  ~OperationPool();
  OperationPool(const OperationPool&) = delete;
  OperationPool& operator=(const OperationPool&) = delete;

  OperationRef take(CommunicatorImpl* owner, PlannedCall call);
  /// The communicator goes.
  void abandon() noexcept { abandoned_.store(true, std::memory_order_seq_cst); }
  bool abandoned() const noexcept { return abandoned_.load(std::memory_order_seq_cst); }
  /// Returns when no Operation::Waiter is left. The communicator's destructor calls it once all
  /// operations are done; waiters that come later do not touch the communicator.
  void await_waiters() const noexcept;

 private:
  friend class Operation;
  Operation* take_free();
  void give_back(Operation* operation) noexcept;

  Operation* free_ = nullptr;                     // calling thread only
  sync::Atomic<Operation*> given_back_{nullptr};  // since it looked last
  sync::Atomic<bool> abandoned_{false};
  sync::Atomic<int> waiters_{0};
};

/// Operations in the order in which they were issued, without a lock: push() by the calling thread,
/// the rest by the engine's owner. The one that was popped last stays held, as the link to what
/// comes.
class OperationQueue {
 public:
  explicit OperationQueue(OperationRef before_the_first)
      : popped_(std::move(before_the_first)), last_(popped_.get()) {}
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  void push(const OperationRef& operation) noexcept;
  /// The oldest; null: none.
  Operation* front() const noexcept { return popped_->next_.load(std::memory_order_acquire); }
  void pop() noexcept;

 private:
  OperationRef popped_;  // the engine's owner's
  Operation* last_;      // the calling thread's
};

}  // namespace tutti
