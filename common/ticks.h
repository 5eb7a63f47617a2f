// The processor's counter of time, which is read in a third of the time that the clock takes.
#pragma once

#if defined(__x86_64__)
#include <x86intrin.h>
#elif !defined(__aarch64__)
#include <chrono>
#endif

#include <cstdint>

namespace tutti {

/// Returns the time in ticks of a rate that is constant and the same for all cores of a machine. It
/// is monotonic within a few nanoseconds, since the processor may read the counter before it has
/// ended what comes before. Two readings of this counter and of the steady clock give the rate.
/// Thread-safe.
inline std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t now;
  asm volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

}  // namespace tutti
