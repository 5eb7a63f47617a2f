// An asynchronous call. Operations are reference-counted and reused, so that in the steady state a
// Work costs no allocation.
#pragma once

#include <array>
#include <complex>
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

/// The size of an element of the largest data type.
inline constexpr std::size_t kMostElementBytes = 16;
static_assert(kMostElementBytes == sizeof(std::complex<double>));

/// Holds a collective call that has been checked, while it waits for its turn or is under way.
struct PlannedCall {
  CallKey key;
  const void* input = nullptr;
  void* output = nullptr;
  std::chrono::milliseconds timeout{0};
  std::size_t result_bytes = 0;
  std::shared_ptr<BoundProgram> program;     ///< May be null; then it is looked up by `key`.
  std::shared_ptr<const BlockTable> blocks;  ///< The blocks of a persistent variable call.
  const UserReduction* reduction = nullptr;
  alignas(std::max_align_t) std::array<std::byte, kMostElementBytes> premultiplier{};
  bool staged = false;     ///< It is ordered by a GPU's stream; see runtime/staged.
  void* stream = nullptr;  ///< Names that stream; null is the default stream.

  CallExtras extras() const noexcept { return {premultiplier.data(), reduction}; }
};

class OperationPool;
class Staging;

/// An asynchronous call, from its start to its end. Thread-safe except for the public members:
/// these are constant from take() on, or belong to the thread that owns the engine once the call
/// has begun. The alignment leaves free bits of the address, in which a C handle keeps its number.
class alignas(64) Operation {
 public:
  Operation();
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  bool done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// Valid once done() is true.
  const std::optional<Error>& error() const noexcept { return error_; }

  /// Calls `callback` when the call has ended, before done() becomes true, or at once if it is true
  /// already.
  void then(Work::Callback callback);
  /// Ends the call, successfully or with `error`: runs the callbacks, and then makes done() true.
  /// For the owner of the engine.
  void end(std::optional<Error> error) noexcept;

  const BlockTable& blocks() const noexcept { return call.blocks ? *call.blocks : own_blocks; }
  bool is_transfer() const noexcept { return transfer.operation != nullptr; }
  /// Returns whether it is ordered by a GPU's stream; see runtime/staged.
  bool staged() const noexcept { return is_transfer() ? transfer.call.staged : call.staged; }

  void hold() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void let_go() noexcept;

  /// For an operation that stands for a group: it ends when `parts` operations have ended, with the
  /// first of their errors.
  void await_parts(int parts) noexcept;
  void part_ended(const Error* error) noexcept;

  /// Returns whether the destruction of `owner` has not begun. It may begin at any time, unless the
  /// operation was not started yet or a Waiter delays it.
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

  /// Alive until the operation is done, if it was started; see Waiter.
  CommunicatorImpl* owner = nullptr;
  PlannedCall call;
  BlockTable
      own_blocks;  ///< The blocks of a variable call that is not persistent. Its memory is reused.
  /// Holds the stream's part of a call on a GPU, from its start to its end; otherwise it is null.
  std::unique_ptr<Staging> staging;
  /// A graph holds the call, and starts it at each replay; see runtime/staged/captures.h. Such an
  /// operation never ends.
  bool captured = false;
  /// Links the transfers that wait for their streams, and the captured calls that were started.
  Operation* next_unready = nullptr;
  Transfer transfer;                      ///< A send or receive, which takes the place of `call`.
  TimePoint deadline = TimePoint::max();  ///< Set when `call` begins, not when it is queued.
  std::uint64_t called = 0;               ///< When it was queued, in ticks; 0: see Transfer.
  /// The number of C handles freed over all uses of this object, which is a part of the next
  /// handle.
  sync::Atomic<std::uint32_t> handles_freed{0};

 private:
  friend class OperationPool;
  friend class OperationQueue;

  static constexpr std::size_t kUsualCallbacks = 2;

  void call_back(const Work::Callback& callback) noexcept;

  std::shared_ptr<OperationPool> pool_;  // set while references_ is above 0
  sync::Atomic<int> references_{0};
  sync::Atomic<Operation*> next_{nullptr};  // the next one in the pool or in a queue
  std::optional<Error> error_;              // written before done_ is set
  sync::Atomic<bool> done_{false};
  sync::Mutex mutex_;
  bool ended_ = false;               // guarded by mutex_; once true, nothing is added to callbacks_
  int parts_ = 0;                    // guarded by mutex_; the number of parts that have not ended
  std::optional<Error> part_error_;  // guarded by mutex_; the first error of a part
  std::vector<Work::Callback> callbacks_;  // guarded by mutex_
};

static_assert(alignof(Operation) == 64 && sizeof(Operation) % 64 == 0);

/// Holds a reference to an operation. It is as thread-safe as a shared_ptr.
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

/// Keeps the operations of one communicator that are free. The calling thread takes them, and any
/// thread gives them back, without a lock. The pool outlives the communicator as long as one of its
/// Works does.
class OperationPool : public std::enable_shared_from_this<OperationPool> {
 public:
  OperationPool() = default;
  ~OperationPool();
  OperationPool(const OperationPool&) = delete;
  OperationPool& operator=(const OperationPool&) = delete;

  OperationRef take(CommunicatorImpl* owner, PlannedCall call);
  /// Marks that the destruction of the communicator has begun.
  void abandon() noexcept { abandoned_.store(true, std::memory_order_seq_cst); }
  bool abandoned() const noexcept { return abandoned_.load(std::memory_order_seq_cst); }
  /// Returns when no Operation::Waiter is left. The communicator's destructor calls it once all
  /// operations are done; waiters that come later do not touch the communicator.
  void await_waiters() const noexcept;

 private:
  friend class Operation;
  Operation* take_free();
  void give_back(Operation* operation) noexcept;

  Operation* free_ = nullptr;  // used by the calling thread alone
  // The list of operations that were given back since the calling thread last took them over.
  sync::Atomic<Operation*> given_back_{nullptr};
  sync::Atomic<bool> abandoned_{false};
  sync::Atomic<int> waiters_{0};
};

/// Holds operations in the order in which they were issued, without a lock: the calling thread
/// calls push(), and the owner of the engine calls the rest. The queue keeps a reference to the
/// operation that was popped last, because that one links to the next.
class OperationQueue {
 public:
  explicit OperationQueue(OperationRef before_the_first)
      : popped_(std::move(before_the_first)), last_(popped_.get()) {}
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  void push(const OperationRef& operation) noexcept;
  /// Returns the oldest operation, or null if the queue is empty.
  Operation* front() const noexcept { return popped_->next_.load(std::memory_order_acquire); }
  void pop() noexcept;

 private:
  OperationRef popped_;  // used by the engine's owner
  Operation* last_;      // used by the calling thread
};

}  // namespace tutti
