// The stripes of a large call, in threads: a blocking caller with cores of its own to spare has
// them all moved at once.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "common/sync.h"
#include "runtime/engine/execution.h"

namespace tutti {

/// Runs all stripes of a program but the first, which is its owner's own affair. Used by its
/// owner's thread; each worker has a thread of its own, asleep between calls, or the owner's where
/// that is wished.
class WorkerPool {
 public:
  /// `done` is called in a worker's thread when it has ended its part.
  explicit WorkerPool(std::function<void()> done) : done_(std::move(done)) {}
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// As Execution::start() for each of bound.others. `in_threads`, as far as there can be any.
  void start(BoundProgram& bound, const CallBuffers& buffers, std::uint32_t operation,
             ResultStores stores, bool in_threads);
  /// True once all are through. Throws what Execution::advance() does.
  bool advance();
  bool busy() const noexcept { return busy_ > 0; }

  /// Nobody touches the call's buffers any more.
  void stop() noexcept;
  /// In a forked child, where the threads are not: they are neither joined nor waited for.
  void forget() noexcept;

 private:
  struct Worker {
    Execution execution;
    sync::Thread thread;
    sync::Atomic<std::uint32_t> calls{0};  // started
    sync::Atomic<bool> through{false};
    std::exception_ptr thrown;  // read once through
  };

  void live(Worker& worker) noexcept;
  void work(Worker& worker) noexcept;
  bool start_threads();

  const std::function<void()> done_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::size_t busy_ = 0;  // of workers_, the first ones
  bool in_threads_ = false;
  sync::Atomic<bool> stop_{false};
  sync::Atomic<bool> quit_{false};
};

}  // namespace tutti
