// Everything by which threads meet: atomics, fences, locks, threads, giving up the core, and
// sleeping until a descriptor has an event. The runtime and the rings use these names alone, so
// that a test build can put a scheduler in their place that decides which thread goes on: it
// defines TUTTI_SYNC as the header that takes the place of what is below
// (tests/interleaving/sync.h). Here they are the standard library's own.
#pragma once

#ifdef TUTTI_SYNC
#include TUTTI_SYNC
#else

#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

namespace tutti::sync {

template <typename T>
using Atomic = std::atomic<T>;
/// Atomic operations on a word that is not an Atomic.
template <typename T>
using AtomicRef = std::atomic_ref<T>;
using Mutex = std::mutex;
/// A condition variable for a Mutex. Of its waits, only wait_until() with a predicate is used.
using Condition = std::condition_variable;
using Thread = std::thread;
using ThreadId = std::thread::id;

inline ThreadId this_thread() noexcept { return std::this_thread::get_id(); }

inline void fence(std::memory_order order) noexcept { std::atomic_thread_fence(order); }
/// Keeps the compiler, and not the processor, from reordering.
inline void compiler_fence(std::memory_order order) noexcept { std::atomic_signal_fence(order); }
/// Says that the caller has just made all threads execute a fence, with membarrier(2).
inline void fenced_all_threads() noexcept {}

/// Lets another thread have the core.
inline void yield() noexcept { sched_yield(); }
inline void sleep_for(std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); }

/// Waits until a descriptor that `epoll_fd` watches has an event, or until `time` has passed (which
/// is at most INT_MAX milliseconds), or a signal has arrived.
inline void await_event(int epoll_fd, std::chrono::milliseconds time) noexcept {
  std::array<epoll_event, 8> events;
  epoll_wait(epoll_fd, events.data(), events.size(), static_cast<int>(time.count()));
}
/// Adds 1 to an eventfd, which wakes the threads that wait for it. Ignores that the counter is at
/// its maximum, and that nobody reads the descriptor any more.
inline void signal_event(int event_fd) noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd, &one, sizeof one);
}

/// Say that plain memory which an atomic publishes is about to be read, or has been written. They
/// do nothing here; a test build finds data races with them.
inline void read(const void*, std::size_t) noexcept {}
inline void written(const void*, std::size_t) noexcept {}

}  // namespace tutti::sync

#endif
