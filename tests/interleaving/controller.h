// The controller of a test: it decides at every operation of common/sync.h which thread goes on,
// and what a load returns. sync.h calls it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tutti::sync {

/// Says what a thread is about to do, or what it waits for.
enum class Kind : std::uint8_t {
  load,
  store,
  exchange,
  compare_exchange,
  fetch_add,
  fetch_sub,
  fetch_and,
  fetch_or,
  fetch_xor,
  fence,
  compiler_fence,
  atomic_wait,    ///< Waits for an atomic to be notified.
  atomic_notify,  ///< One waiter or all.
  lock,
  try_lock,
  unlock,
  condition_wait,  ///< Waits for a Condition to be notified; the mutex is not held.
  condition_notify,
  thread_start,
  thread_join,
  signal_event,
  await_event,
  yield,
  sleep,
};

/// Whether an operation of this kind reads an atomic and writes it in one step.
constexpr bool is_read_modify_write(Kind kind) noexcept {
  return kind >= Kind::exchange && kind <= Kind::fetch_xor;
}

/// Decides what happens to the threads of a test. All functions are called by threads that the
/// controller knows (see Known), and only by these; every function may be called by any of them.
///
/// A controller that runs one thread at a time changes threads in point(), block() and the other
/// functions that wait, and nowhere else. Between point() and the report that follows it (load(),
/// stored(), read_modify_write(), fence(), acquired(), released() …) no other thread runs, so that
/// an operation and its report are one step.
///
/// Values of atomics are given as the bytes of the value in the low bytes of a word, with zeros
/// above.
class Controller {
 public:
  virtual ~Controller() = default;

  /// The calling thread is about to do `kind` to `address`, which is null for fences, yields and
  /// sleeps. The memory order is that of success where the operation has two.
  virtual void point(Kind kind, const void* address, std::memory_order order) = 0;

  // Weak memory. The atomics themselves always hold the latest value in the modification order, and
  // these functions are called with it, so that a controller need not know an atomic beforehand.

  /// An Atomic begins its life at `address` with this value: what was known of the address is void.
  virtual void created(const void* /*address*/, std::uint64_t /*value*/) {}
  /// Returns the value that a load sees: the latest one, or an older one that the memory model
  /// allows. A compare_exchange that fails is a load with the order of failure; if an older value
  /// equals the one expected, it sees the latest nevertheless.
  virtual std::uint64_t load(const void* /*address*/, std::uint64_t latest, std::memory_order) {
    return latest;
  }
  /// `address` held `before`, and a plain store has made it `after`.
  virtual void stored(const void* /*address*/, std::uint64_t /*before*/, std::uint64_t /*after*/,
                      std::memory_order) {}
  /// An operation that reads and writes in one step has read `before`, which is the latest value,
  /// and written `after`. A compare_exchange that failed is no such operation.
  virtual void read_modify_write(Kind, const void* /*address*/, std::uint64_t /*before*/,
                                 std::uint64_t /*after*/, std::memory_order) {}
  /// A fence has been executed. `kind` is fence or compiler_fence.
  virtual void fence(Kind /*kind*/, std::memory_order) {}
  /// The caller has made all threads execute a sequentially consistent fence, with membarrier(2).
  virtual void fenced_all_threads() {}
  /// Plain memory is about to be read, or has been written.
  virtual void read(const void* /*address*/, std::size_t /*bytes*/) {}
  virtual void written(const void* /*address*/, std::size_t /*bytes*/) {}

  /// The calling thread has locked the mutex at `address`, or is about to unlock it.
  virtual void acquired(const void* /*mutex*/) {}
  virtual void released(const void* /*mutex*/) {}

  // Waiting.

  /// Waits until another thread calls wake() for the same kind and address. Kinds: lock,
  /// atomic_wait, condition_wait.
  virtual void block(Kind kind, const void* address) = 0;
  /// Like block(), but ends at `deadline` at the latest. Returns false if the deadline ended it.
  virtual bool block_until(Kind kind, const void* address,
                           std::chrono::steady_clock::time_point deadline) = 0;
  /// Ends the wait of all threads that are blocked so, or of one of them.
  virtual void wake(Kind kind, const void* address, bool all) = 0;
  /// Waits until a descriptor that `epoll_fd` watches has an event, or `time` has passed.
  virtual void await_event(int epoll_fd, std::chrono::milliseconds time) = 0;
  virtual void yield() = 0;
  virtual void sleep_for(std::chrono::nanoseconds time) = 0;

  // Threads. A record stands for a thread from its start until it has been joined, or has ended
  // after it was detached; 0 is none.

  using Record = std::uint64_t;
  /// The caller is about to start a thread. Followed by started(), or by not_started() where the
  /// kernel gives no thread.
  virtual Record starting() = 0;
  virtual void started(Record) {}
  virtual void not_started(Record) = 0;
  /// The first call of the new thread, which Known makes it known before; it returns when the
  /// thread may run.
  virtual void begin(Record) = 0;
  /// The last call of the thread.
  virtual void end(Record) = 0;
  /// Waits until the thread has called end().
  virtual void join(Record) = 0;
  virtual void detach(Record) {}
};

namespace detail {
inline std::atomic<Controller*> installed{nullptr};
inline thread_local bool known = false;
}  // namespace detail

/// Installs a controller for the whole process, or removes it where `controller` is null. Called
/// while no known thread exists but the caller.
inline void install(Controller* controller) noexcept {
  detail::installed.store(controller, std::memory_order_release);
}

/// Returns the controller that is installed if it knows the calling thread, and null otherwise:
/// such threads go straight to the standard library.
inline Controller* controller() noexcept {
  return detail::known ? detail::installed.load(std::memory_order_acquire) : nullptr;
}

/// Makes the calling thread known to the installed controller for as long as the object exists.
/// Threads that a known thread starts as sync::Thread are known from their first instruction.
class Known {
 public:
  Known() noexcept : before_(detail::known) { detail::known = true; }
  ~Known() { detail::known = before_; }
  Known(const Known&) = delete;
  Known& operator=(const Known&) = delete;

 private:
  const bool before_;
};

/// Makes the calling thread unknown for as long as the object exists: what it does meanwhile
/// happens in one step of the test, as a check of the test or a controller's own work does.
class Unknown {
 public:
  Unknown() noexcept : before_(detail::known) { detail::known = false; }
  ~Unknown() { detail::known = before_; }
  Unknown(const Unknown&) = delete;
  Unknown& operator=(const Unknown&) = delete;

 private:
  const bool before_;
};

}  // namespace tutti::sync
