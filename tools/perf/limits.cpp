#include "perf/limits.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "perf/cores.h"
#include "perf/pages.h"

namespace tutti::perf {
namespace {

using Clock = std::chrono::steady_clock;

double ns_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

/// Returns the value that a part of the values, such as 0.5 of them, is below.
double quantile(std::vector<double> values, double part) {
  assert(!values.empty() && part < 1);
  const auto position = static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size()));
  std::nth_element(values.begin(), values.begin() + position, values.end());
  return values[static_cast<std::size_t>(position)];
}

struct alignas(128) Line {  // two cache lines, since the prefetcher fetches pairs
  std::atomic<std::uint32_t> value{0};
};

/// Waits until the line's number, which only grows, has reached `value`. Yields from time to time,
/// since other ranks may need the core.
void wait_for(const Line& line, std::uint32_t value) {
  for (int polls = 0; line.value.load(std::memory_order_acquire) < value; ++polls)
    if (polls > 100'000) std::this_thread::yield();
}

/// A barrier of two threads. `round` counts up from 1.
void meet(Line (&lines)[2], int self, std::uint32_t round) {
  assert((self == 0 || self == 1) && round > lines[self].value.load(std::memory_order_relaxed));
  lines[self].value.store(round, std::memory_order_release);
  wait_for(lines[1 - self], round);
}

/// Runs body(0) and body(1) at the same time, each on its core.
template <typename Body>
void on_two_cores(const int (&cores)[2], Body body) {
  const auto run = [&](int self) {
    pin(cores[self]);
    body(self);
  };
  std::thread first(run, 0), second(run, 1);
  first.join();
  second.join();
}

// Copies in parts, since memcpy uses streaming stores beyond some size, which depends on the
// machine.
void copy_plain(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kPart = 64 * 1024;
  for (std::size_t i = 0; i < bytes; i += kPart)
    std::memcpy(to + i, from + i, std::min(kPart, bytes - i));
}

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t i = 0;
#if defined(__SSE2__)
  assert(reinterpret_cast<std::uintptr_t>(to) % 16 == 0);
  for (; i + 64 <= bytes; i += 64) {
    const auto* source = reinterpret_cast<const __m128i*>(from + i);
    auto* target = reinterpret_cast<__m128i*>(to + i);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();
#endif
  copy_plain(to + i, from + i, bytes - i);
}

/// Each core has two generations of a buffer, and copies each generation from the one before, half
/// from its own and half from the other core's buffer. Returns the time of the slower core. It is
/// the lower quartile, since delays on a busy machine are not part of the limit.
template <typename CopyFunction>
double copy_us(const int (&cores)[2], std::size_t bytes, CopyFunction copy) {
  Pages memory[2][2];  // indexed by core and generation
  for (auto& of_core : memory)
    for (Pages& generation : of_core) generation = allocate_pages(bytes);
  const std::size_t half = bytes / 2 / 64 * 64;
  Line lines[2];
  std::vector<double> times[2];
  std::atomic<bool> enough{false};
  on_two_cores(cores, [&](int self) {
    const auto end = Clock::now() + std::chrono::milliseconds(10);
    std::uint32_t round = 0;
    for (std::size_t old = 0, fresh = 1;; std::swap(old, fresh)) {
      meet(lines, self, ++round);
      if (enough.load(std::memory_order_relaxed)) break;
      const auto start = Clock::now();
      copy(memory[self][fresh].get(), memory[self][old].get(), half);
      copy(memory[self][fresh].get() + half, memory[1 - self][old].get() + half, bytes - half);
      times[self].push_back(ns_since(start));
      meet(lines, self, ++round);
      if (self == 0 && round >= 6 && Clock::now() >= end)
        enough.store(true, std::memory_order_relaxed);  // the next meet() publishes it
    }
  });
  return std::max(quantile(times[0], 0.25), quantile(times[1], 0.25)) / 1e3;
}

/// One core writes and the other copies. Returns the time of the copy, the lower quartile.
template <typename CopyFunction>
double take_over_us(const int (&cores)[2], std::size_t bytes, CopyFunction copy) {
  const Pages from = allocate_pages(bytes), to = allocate_pages(bytes);
  Line lines[2];
  std::vector<double> times;
  std::atomic<bool> enough{false};
  on_two_cores(cores, [&](int self) {
    const auto end = Clock::now() + std::chrono::milliseconds(10);
    std::uint32_t round = 0;
    while (!enough.load(std::memory_order_relaxed)) {
      if (self == 0) std::memset(from.get(), static_cast<int>(round & 127), bytes);
      meet(lines, self, ++round);
      if (self == 1) {
        const auto start = Clock::now();
        copy(to.get(), from.get(), bytes);
        times.push_back(ns_since(start));
        if (times.size() >= 3 && Clock::now() >= end)
          enough.store(true, std::memory_order_relaxed);  // meet() publishes it
      }
      meet(lines, self, ++round);
    }
  });
  return quantile(times, 0.25) / 1e3;
}

}  // namespace

double Limits::one_way_ns() const {
  constexpr int kBatches = 48;
  constexpr std::uint32_t kRoundTrips = 50;
  Line lines[2];
  std::vector<double> times;
  on_two_cores(cores_, [&](int self) {
    std::uint32_t value = 0;
    for (int batch = 0; batch < kBatches; ++batch) {
      const auto start = Clock::now();
      for (std::uint32_t i = 0; i < kRoundTrips; ++i) {
        ++value;
        if (self == 1) wait_for(lines[0], value);
        lines[self].value.store(value, std::memory_order_release);
        if (self == 0) wait_for(lines[1], value);
      }
      if (self == 0) times.push_back(ns_since(start) / (2 * kRoundTrips));
    }
  });
  return quantile(times, 0.5);
}

Limits::Copy Limits::copy(std::size_t bytes) const {
  return {copy_us(cores_, bytes, copy_plain), copy_us(cores_, bytes, copy_streaming)};
}

Limits::Copy Limits::take_over(std::size_t bytes) const {
  return {take_over_us(cores_, bytes, copy_plain), take_over_us(cores_, bytes, copy_streaming)};
}

double Limits::all_reduce_us(std::size_t bytes) const {
  return std::max(one_way_ns() / 1e3, copy(bytes).least_us());
}

}  // namespace tutti::perf
