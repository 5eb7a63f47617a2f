// This takes the place of the standard library in common/sync.h in a test build: each operation
// asks the controller of the calling thread first (controller.h), and goes straight to the standard
// library where there is none.
#pragma once

#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "tests/interleaving/atomic.h"
#include "tests/interleaving/controller.h"

namespace tutti::sync {

/// A mutex that is also a std::mutex: threads without a controller and those with one exclude each
/// other.
class Mutex {
 public:
  constexpr Mutex() noexcept = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() {
    Controller* const c = controller();
    if (c == nullptr) return mutex_.lock();
    c->point(Kind::lock, this, std::memory_order_acquire);
    while (!mutex_.try_lock()) c->block(Kind::lock, this);
    c->acquired(this);
  }
  bool try_lock() {
    Controller* const c = controller();
    if (c == nullptr) return mutex_.try_lock();
    c->point(Kind::try_lock, this, std::memory_order_acquire);
    const bool locked = mutex_.try_lock();
    if (locked) c->acquired(this);
    return locked;
  }
  void unlock() {
    Controller* const c = controller();
    if (c == nullptr) return mutex_.unlock();
    c->point(Kind::unlock, this, std::memory_order_release);
    ++times_unlocked_;
    c->released(this);
    mutex_.unlock();
    c->wake(Kind::lock, this, true);
  }

 private:
  std::mutex mutex_;
  // AddressSanitizer does not see what the C library does with a mutex that is no more. It sees
  // this.
  unsigned times_unlocked_ = 0;
};

/// A condition variable whose waiters are either all known to a controller or all unknown.
class Condition {
 public:
  Condition() = default;
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  template <typename Predicate>
  bool wait_until(std::unique_lock<Mutex>& lock, std::chrono::steady_clock::time_point deadline,
                  Predicate predicate) {
    Controller* const c = controller();
    if (c == nullptr) return condition_.wait_until(lock, deadline, std::move(predicate));
    while (!predicate()) {
      // To unlock and to begin the wait is one step, since unlock() lets others run before it only.
      lock.unlock();
      const bool notified = c->block_until(Kind::condition_wait, this, deadline);
      lock.lock();
      if (!notified) return predicate();
    }
    return true;
  }
  void notify_one() noexcept { notify(false); }
  void notify_all() noexcept { notify(true); }

 private:
  void notify(bool all) noexcept {
    Controller* const c = controller();
    if (c == nullptr) return all ? condition_.notify_all() : condition_.notify_one();
    c->point(Kind::condition_notify, this, std::memory_order_relaxed);
    c->wake(Kind::condition_wait, this, all);
  }

  std::condition_variable_any condition_;
};

using ThreadId = std::thread::id;

inline ThreadId this_thread() noexcept { return std::this_thread::get_id(); }

class Thread {
 public:
  Thread() noexcept = default;
  template <typename Function>
  requires(!std::same_as<std::remove_cvref_t<Function>, Thread>) explicit Thread(
      Function&& function) {
    Controller* const c = controller();
    if (c == nullptr) {
      thread_ = std::thread(std::forward<Function>(function));
      return;
    }
    c->point(Kind::thread_start, this, std::memory_order_release);
    record_ = c->starting();
    try {
      thread_ = std::thread(
          [c, record = record_](auto body) {
            const Known known;
            c->begin(record);
            // All that the body owns is destroyed before the thread ends.
            std::make_unique<decltype(body)>(std::move(body))->operator()();
            c->end(record);
          },
          std::forward<Function>(function));
    } catch (...) {
      c->not_started(record_);
      throw;
    }
    c->started(record_);
  }
  Thread(Thread&& other) noexcept
      : thread_(std::move(other.thread_)), record_(std::exchange(other.record_, 0)) {}
  Thread& operator=(Thread&& other) noexcept {
    thread_ = std::move(other.thread_);
    record_ = std::exchange(other.record_, 0);
    return *this;
  }

  bool joinable() const noexcept { return thread_.joinable(); }
  ThreadId get_id() const noexcept { return thread_.get_id(); }
  void join() {
    if (Controller* const c = controller(); c != nullptr && record_ != 0) {
      c->point(Kind::thread_join, this, std::memory_order_acquire);
      c->join(record_);
    }
    thread_.join();
    record_ = 0;
  }
  void detach() {
    if (Controller* const c = controller(); c != nullptr && record_ != 0) c->detach(record_);
    thread_.detach();
    record_ = 0;
  }

 private:
  std::thread thread_;
  Controller::Record record_ = 0;
};

inline void fence(std::memory_order order) noexcept {
  Controller* const c = controller();
  if (c != nullptr) c->point(Kind::fence, nullptr, order);
  std::atomic_thread_fence(order);
  if (c != nullptr) c->fence(Kind::fence, order);
}
inline void compiler_fence(std::memory_order order) noexcept {
  std::atomic_signal_fence(order);
  if (Controller* const c = controller()) c->fence(Kind::compiler_fence, order);
}
inline void fenced_all_threads() noexcept {
  if (Controller* const c = controller()) c->fenced_all_threads();
}

inline void yield() noexcept {
  if (Controller* const c = controller())
    c->yield();
  else
    sched_yield();
}
inline void sleep_for(std::chrono::nanoseconds time) {
  if (Controller* const c = controller())
    c->sleep_for(time);
  else
    std::this_thread::sleep_for(time);
}

inline void await_event(int epoll_fd, std::chrono::milliseconds time) noexcept {
  if (Controller* const c = controller()) return c->await_event(epoll_fd, time);
  std::array<epoll_event, 8> events;
  epoll_wait(epoll_fd, events.data(), events.size(), static_cast<int>(time.count()));
}
inline void signal_event(int event_fd) noexcept {
  if (Controller* const c = controller())
    c->point(Kind::signal_event, nullptr, std::memory_order_relaxed);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd, &one, sizeof one);
}

inline void read(const void* address, std::size_t bytes) noexcept {
  if (Controller* const c = controller()) c->read(address, bytes);
}
inline void written(const void* address, std::size_t bytes) noexcept {
  if (Controller* const c = controller()) c->written(address, bytes);
}

}  // namespace tutti::sync
