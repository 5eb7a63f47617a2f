// Everything by which threads meet: atomics, fences, locks, threads, and giving up the core. The
// runtime and the rings use these names alone, so that a test build can put a scheduler in their
// place that decides which thread goes on. Here they are the standard library's own.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace tutti::sync {

template <typename T>
using Atomic = std::atomic<T>;
using Mutex = std::mutex;
using Thread = std::thread;
using ThreadId = std::thread::id;

inline ThreadId this_thread() noexcept { return std::this_thread::get_id(); }

inline void fence(std::memory_order order) noexcept { std::atomic_thread_fence(order); }
/// Keeps the compiler, and not the processor, from reordering.
inline void compiler_fence(std::memory_order order) noexcept { std::atomic_signal_fence(order); }

/// Lets another thread have the core.
inline void yield() noexcept { sched_yield(); }
inline void sleep_for(std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); }

}  // namespace tutti::sync
