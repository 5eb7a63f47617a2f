// The worker pool: threads that move the stripes of a large blocking call in parallel, if the rank
// has idle cores.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "common/sync.h"
#include "runtime/engine/execution.h"

namespace tutti {

/// Runs all stripes of a program except the first, which the owner of the pool runs itself. Only
/// the owner's thread calls these functions. Each worker has a thread of its own, which sleeps
/// between calls; if the call does not want threads, the owner's thread runs all workers.
class WorkerPool {
 public:
  /// A worker's thread calls `done` when it has ended its part.
  explicit WorkerPool(std::function<void()> done) : done_(std::move(done)) {}
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Calls Execution::start() for each of bound.others. If `in_threads` is true, they run in
  /// threads, provided that these can be started.
  void start(HostProgram& bound, const CallBuffers& buffers, std::uint32_t operation,
             ResultStores stores, bool in_threads);
  /// Returns true once all stripes are done. Throws what Execution::advance() throws.
  bool advance();
  bool busy() const noexcept { return busy_ > 0; }

  /// Stops the workers: once it returns, no thread touches the call's buffers any more.
  void stop() noexcept;
  /// For a forked child, which does not have the threads: it neither joins nor waits for them.
  void forget() noexcept;

 private:
  struct Worker {
    Execution execution;
    sync::Thread thread;
    sync::Atomic<std::uint32_t> calls{0};  // number of calls that were started
    sync::Atomic<bool> through{false};
    std::exception_ptr thrown;  // read once `through` is true
  };

  void live(Worker& worker) noexcept;
  void work(Worker& worker) noexcept;
  bool start_threads();

  const std::function<void()> done_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::size_t busy_ = 0;  // the number of workers in use, which are the first ones of workers_
  bool in_threads_ = false;
  sync::Atomic<bool> stop_{false};
  sync::Atomic<bool> quit_{false};
};

}  // namespace tutti
