// Explores what a few threads can do under a weak memory model, exhaustively. The threads run real
// code of the library, whose atomics, fences and plain memory reach this class through
// common/sync.h.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/clock.h"
#include "tests/interleaving/controller.h"

namespace tutti::interleaving {

/// A few threads that share memory. A scenario is constructed anew for each execution, and its
/// behaviour depends on nothing but the values that its atomics return.
class Scenario {
 public:
  virtual ~Scenario() = default;
  virtual int threads() const = 0;
  /// The body of thread `number`. It fails by throwing an exception.
  virtual void run(int number) = 0;
  /// Is called when all threads have ended, and throws if something is wrong.
  virtual void check() {}
};

/// Reports what an exploration found.
struct Exploration {
  std::uint64_t executions = 0;  ///< Those that ran to their end.
  std::uint64_t redundant = 0;  ///< Those that were cut short, since others are equivalent to them.
  bool complete = false;        ///< Whether all executions within the bounds were explored.
  std::string failure;          ///< The first failure with the steps that led to it, or empty.
};

/// The model is operational, with views: each atomic keeps all values that it has had in this
/// execution, in modification order, and a load may return each of them that is not older than what
/// its thread has seen. So a store may stay invisible to others for any time, and a load may be
/// overtaken by later loads, as on Arm and POWER; x86 permits a subset. Release and acquire,
/// release sequences, fences and the order of sequentially consistent operations restrict the
/// choice as C++20 says. It is the fragment without promises of Kang, Hur, Lahav, Garg and Dreyer,
/// "A Promising Semantics for Relaxed-Memory Concurrency", POPL 2017. Two things are not modelled:
/// a store that becomes visible before an earlier load of its thread has returned (load buffering),
/// and a modification order that differs from the order in which stores are executed.
///
/// Plain memory is checked for data races: each access must happen after the conflicting ones.
///
/// The executions are enumerated depth first, by repeating the scenario with other choices (which
/// thread goes on, which value a load returns). Sleep sets leave out executions that differ from an
/// explored one only in the order of independent steps (Godefroid, "Partial-Order Methods for the
/// Verification of Concurrent Systems", 1996).
class MemoryModel final : public sync::Controller {
 public:
  struct Bounds {
    std::uint64_t executions = 20'000'000;
    int steps = 2'000;  ///< Of one execution; more are a failure.
  };

  using Make = std::function<std::unique_ptr<Scenario>()>;
  static Exploration explore(const Make& make, const Bounds& bounds);
  static Exploration explore(const Make& make) { return explore(make, Bounds()); }

  /// The model whose scenario runs now.
  static MemoryModel& current();

  // sync::Controller, for the threads of the scenario. yield() waits until there is a value that
  // the thread was not bound to see, as a thread does that polls in vain: what is stored becomes
  // visible to it in the end, though nothing is ordered by that. If no thread can go on, the
  // exploration fails. Time does not pass: a sleep over descriptors has no deadline.
  void point(sync::Kind kind, const void* address, std::memory_order order) override;
  void created(const void* address, std::uint64_t value) override;
  std::uint64_t load(const void* address, std::uint64_t latest, std::memory_order order) override;
  void stored(const void* address, std::uint64_t before, std::uint64_t after,
              std::memory_order order) override;
  void read_modify_write(sync::Kind kind, const void* address, std::uint64_t before,
                         std::uint64_t after, std::memory_order order) override;
  void fence(sync::Kind kind, std::memory_order order) override;
  void fenced_all_threads() override;
  void read(const void* address, std::size_t bytes) override;
  void written(const void* address, std::size_t bytes) override;
  void acquired(const void* mutex) override;
  void released(const void* mutex) override;
  void block(sync::Kind kind, const void* address) override;
  bool block_until(sync::Kind kind, const void* address, TimePoint deadline) override;
  void wake(sync::Kind kind, const void* address, bool all) override;
  void await_event(int epoll_fd, std::chrono::milliseconds time) override;
  void yield() override;
  void sleep_for(std::chrono::nanoseconds time) override;
  // A scenario starts no threads.
  Record starting() override;
  void not_started(Record) override {}
  void begin(Record) override {}
  void end(Record) override {}
  void join(Record) override {}

 private:
  struct State;
  explicit MemoryModel(State& state);
  ~MemoryModel() override;
  void append(const void* address, std::uint64_t before, std::uint64_t after,
              std::memory_order order, bool modifies);

  State& state_;
};

}  // namespace tutti::interleaving
