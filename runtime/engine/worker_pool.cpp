#include "runtime/engine/worker_pool.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include "common/sync.h"
#include "runtime/engine/wait.h"

namespace tutti {
namespace {

// No doorbell wakes a worker. A worker whose peers are late sleeps for short times, which get
// longer and longer.
template <typename Done>
void await_worker(Done&& done) {
  constexpr int kAttemptsPerYield = 64, kYields = 312;
  constexpr std::chrono::microseconds kShortest{50}, kLongest{1000};
  auto nap = kShortest;
  wait(
      WaitPolicy{1, kYields, std::chrono::microseconds{0}}, SteadyClock(),
      [&] {
        for (int attempt = 0; attempt < kAttemptsPerYield; ++attempt)
          if (done()) return true;
        return false;
      },
      [] {},
      [&](auto&&) {
        sync::sleep_for(nap);
        nap = std::min(2 * nap, kLongest);
        return false;
      });
}

}  // namespace

WorkerPool::~WorkerPool() {
  stop();
  assert(!busy() && !quit_);
  quit_ = true;
  for (const auto& worker : workers_) {
    if (!worker->thread.joinable()) continue;
    worker->calls.fetch_add(1, std::memory_order_release);
    worker->calls.notify_one();
    worker->thread.join();
  }
}

void WorkerPool::start(HostProgram& bound, const CallBuffers& buffers, std::uint32_t operation,
                       ResultStores stores, bool in_threads) {
  assert(!busy() && "the stripes of one call at a time");
  busy_ = bound.others.size();
  assert(busy_ < static_cast<std::size_t>(kMostStripes));
  while (workers_.size() < busy_) workers_.push_back(std::make_unique<Worker>());
  in_threads_ = in_threads && start_threads();
  CallBuffers own = buffers;
  for (std::size_t k = 0; k < busy_; ++k) {
    Worker& worker = *workers_[k];
    if (own.scratch != nullptr) own.scratch += bound.program.scratch_bytes;
    worker.execution.start(*bound.others[k], own, operation, stores);
    worker.through.store(false, std::memory_order_relaxed);
    if (!in_threads_) continue;
    worker.calls.fetch_add(1, std::memory_order_release);
    worker.calls.notify_one();
  }
}

// Returns false if a thread could not be started.
bool WorkerPool::start_threads() {
  try {
    for (std::size_t k = 0; k < busy_; ++k)
      if (Worker& worker = *workers_[k]; !worker.thread.joinable())
        worker.thread = sync::Thread([this, &worker] { live(worker); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

bool WorkerPool::advance() {
  assert(busy_ <= workers_.size());
  bool all = true;
  for (std::size_t k = 0; k < busy_; ++k) {
    Worker& worker = *workers_[k];
    if (!in_threads_ && !worker.through.load(std::memory_order_relaxed) &&
        worker.execution.advance())
      worker.through.store(true, std::memory_order_relaxed);
    if (!worker.through.load(std::memory_order_acquire))
      all = false;
    else if (worker.thrown != nullptr)
      std::rethrow_exception(std::exchange(worker.thrown, nullptr));
  }
  if (all) busy_ = 0;
  return all;
}

void WorkerPool::stop() noexcept {
  stop_.store(true, std::memory_order_relaxed);
  for (std::size_t k = 0; in_threads_ && k < busy_; ++k)
    await_worker(
        [&worker = *workers_[k]] { return worker.through.load(std::memory_order_acquire); });
  for (const auto& worker : workers_) worker->thrown = nullptr;
  stop_.store(false, std::memory_order_relaxed);
  busy_ = 0;
}

void WorkerPool::forget() noexcept {
  busy_ = 0;
  for (const auto& worker : workers_) new (&worker->thread) sync::Thread;
}

void WorkerPool::live(Worker& worker) noexcept {
  for (std::uint32_t seen = 0;;) {
    worker.calls.wait(seen, std::memory_order_acquire);
    seen = worker.calls.load(std::memory_order_acquire);
    if (quit_) return;
    work(worker);
    worker.through.store(true, std::memory_order_seq_cst);
    done_();
  }
}

void WorkerPool::work(Worker& worker) noexcept {
  try {
    await_worker(
        [&] { return stop_.load(std::memory_order_relaxed) || worker.execution.advance(); });
  } catch (...) {
    worker.thrown = std::current_exception();
  }
}

}  // namespace tutti
