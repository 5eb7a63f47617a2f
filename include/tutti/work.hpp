// tutti: handles of asynchronous calls, persistent calls, and groups of calls.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include <tutti/error.hpp>
#include <tutti/export.hpp>
#include <vector>

namespace tutti {

class CommunicatorImpl;
class Group;
class Operation;

/// An asynchronous call. A copyable handle; dropping it cancels nothing. The call's buffers belong
/// to the call until done() is true or the communicator is destroyed. Thread-safe. It takes no
/// allocation once the communicator has had as many calls under way at the same time before.
class TUTTI_API Work {
 public:
  /// Receives the call's error, or null if the call ended well.
  using Callback = std::function<void(const Error*)>;

  Work() noexcept = default;  ///< A call that is done.
  Work(const Work& other) noexcept;
  Work(Work&& other) noexcept;
  Work& operator=(Work other) noexcept;
  ~Work();

  /// Helps to advance the call until it is done. Throws its error.
  void wait();
  /// Does the same for at most `limit`, then throws `timeout`; that ends only the waiting, not the
  /// call.
  void wait(std::chrono::milliseconds limit);
  /// Does the same for at most `limit`, and returns whether the call is done. A `timeout` that it
  /// throws is the call's own.
  [[nodiscard]] bool wait_for(std::chrono::milliseconds limit);
  /// Whether the call has ended, well or not. Never blocks.
  bool done() const noexcept;

  /// Calls `callback` once when the call has ended, just before done() becomes true, in the thread
  /// that ends it (tutti's background thread, a thread that waits, or one that makes a later call).
  /// If the call is already done, calls it at once in this thread, where blocking calls are
  /// allowed: so a callback that makes them works or is `usage` depending on timing. Several
  /// callbacks are called in the order in which they were given. A callback may start asynchronous
  /// calls if no other thread is calling that communicator; a blocking call or wait() on its own
  /// communicator (for a group, that of its first call) is `usage`, since it would wait for itself.
  /// If it destroys the communicator, the communicator is freed a little later, in a thread of its
  /// own. Exceptions that it throws are logged and ignored. A callback delays all calls behind it,
  /// so it should be short.
  void then(Callback callback);

 private:
  friend class CommunicatorImpl;
  friend struct WorkHandle;
  explicit Work(Operation& operation) noexcept;
  Operation* operation_ = nullptr;
};

/// A persistent call: it is planned once and started many times, and there is no planning, no lock
/// and no allocation between run() and the engine. The communicator makes it and must outlive it.
/// One thread at a time uses it, in the same order on every rank as all calls of the communicator.
/// The other ranks' matching calls may be persistent or not.
class TUTTI_API Persistent {
 public:
  Persistent(Persistent&&) noexcept;
  Persistent& operator=(Persistent&&) noexcept;
  ~Persistent();

  /// Runs the call and blocks until it has ended. CallOptions::received, which must outlive this
  /// object, says what a recv received.
  void run();
  /// Starts the call and returns at once. It may be started again before the previous start is
  /// done.
  Work start();
  /// Adds one run to the group and returns at once. The call runs when the group ends.
  void add_to(Group& group);

 private:
  friend class CommunicatorImpl;
  struct Prepared;
  explicit Persistent(std::unique_ptr<Prepared> prepared);
  std::unique_ptr<Prepared> prepared_;
};

/// A group of calls that start together: sends, receives and collectives of one or several
/// communicators. A call whose options name the group is checked (`usage`) and returns at once;
/// end() starts all calls of the group. Sends and receives of a group that cross never wait for
/// each other; its collectives run in the order of the calls on each communicator, which must be
/// the same on every rank. The group must outlive its calls, and the communicators must outlive the
/// end of the group; otherwise it is `usage`, and none of the calls is made. A group may be used
/// again after its end. One thread uses it.
class TUTTI_API Group {
 public:
  Group();
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  ~Group();  ///< Drops the calls that were not started.

  /// Starts all calls, waits for all of them, then throws the first error.
  void end();
  /// Starts all calls. The Work is done when all calls are, with the first error.
  Work end_async();
  /// Starts all calls. Returns the Work of each, in the order of the calls, so that the calls of
  /// one communicator do not wait for those of another; none where the calls are captured into a
  /// graph.
  std::vector<Work> start();

 private:
  friend class CommunicatorImpl;
  struct Calls;
  std::unique_ptr<Calls> calls_;
};

}  // namespace tutti
