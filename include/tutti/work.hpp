// tutti: calls that are under way, calls that are started many times, calls made together.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include <tutti/error.hpp>
#include <tutti/export.hpp>

namespace tutti {

class CommunicatorImpl;
class Group;
class Operation;

/// An asynchronous call. Copyable handle; dropping it cancels nothing. Buffers belong to the call
/// until done() or until the communicator is destroyed. Thread-safe. Costs no allocation once a
/// communicator has had as many under way at a time.
class TUTTI_API Work {
 public:
  /// Gets the call's error, or null where it ended well.
  using Callback = std::function<void(const Error*)>;

  Work() noexcept = default;  ///< Done already.
  Work(const Work& other) noexcept;
  Work(Work&& other) noexcept;
  Work& operator=(Work other) noexcept;
  ~Work();

  /// Helps to advance the call until it is done; throws its error.
  void wait();
  /// As wait(), for at most `limit`: then throws `timeout`, which ends only the waiting.
  void wait(std::chrono::milliseconds limit);
  /// Whether it has ended, well or not. Never blocks.
  bool done() const noexcept;

  /// Calls `callback` once when the call has ended, just before done() turns true: in the thread
  /// that ends it (tutti's background thread, a waiter, or a later call), or at once in this one
  /// where it is done already. Several are called in the order in which they were given. A callback
  /// may start asynchronous calls, where no other thread is calling that communicator; a blocking
  /// call or wait() on its own communicator is `usage`, since it would wait for itself. A
  /// communicator that it destroys goes a little later, in a thread of its own. What it throws is
  /// logged and ignored. It holds up everything behind it: keep it short.
  void then(Callback callback);

 private:
  friend class CommunicatorImpl;
  friend struct WorkHandle;
  explicit Work(Operation& operation) noexcept;
  Operation* operation_ = nullptr;
};

/// A call that is planned once and started many times: no planning, no lock and no allocation
/// between run() and the engine. Made by the communicator, which outlives it; called as that is, by
/// one thread at a time and in the same order on every rank (persistent or not makes no difference
/// to the other ranks).
class TUTTI_API Persistent {
 public:
  Persistent(Persistent&&) noexcept;
  Persistent& operator=(Persistent&&) noexcept;
  ~Persistent();

  /// As the blocking call. What a recv got is told by CallOptions::received, which outlives this.
  void run();
  /// As the asynchronous call. It may be started again before the last start is done.
  Work start();
  /// Returns at once; it is run when the group ends.
  void add_to(Group& group);

 private:
  friend class CommunicatorImpl;
  struct Prepared;
  explicit Persistent(std::unique_ptr<Prepared> prepared);
  std::unique_ptr<Prepared> prepared_;
};

/// Calls that are made together: sends, receives and collectives, of one communicator or several. A
/// call whose options name the group is checked (`usage`) and returns at once; end() starts them
/// all. Sends and receives of a group that cross never wait for each other's turn; its collectives
/// run in the order of the calls on each communicator, and must do so on every rank. Outlives its
/// calls, and the communicators outlive their end (`usage` otherwise, and none of the calls is
/// made). May be used again after it. One thread.
class TUTTI_API Group {
 public:
  Group();
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  ~Group();  ///< Drops the calls that were not started.

  /// Starts all, and waits for all; then throws the first error.
  void end();
  /// Starts all. The Work is done when all are, with the first error.
  Work end_async();

 private:
  friend class CommunicatorImpl;
  struct Calls;
  std::unique_ptr<Calls> calls_;
};

}  // namespace tutti
