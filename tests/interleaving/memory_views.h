// This is what threads have seen of each other's memory, for the memory model: histories of
// atomics, and the views that threads and values have of them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::interleaving {

inline constexpr int kMaxThreads = 4;

/// Holds what a thread has seen: for each atomic the least index in its history that the thread may
/// still read, and for each thread how many of its steps happened before.
struct View {
  std::vector<std::uint32_t> seen;
  std::array<std::uint32_t, kMaxThreads> steps{};

  std::uint32_t of(std::size_t place) const { return place < seen.size() ? seen[place] : 0; }
  void raise(std::size_t place, std::uint32_t index) {
    if (place >= seen.size()) seen.resize(place + 1);
    seen[place] = std::max(seen[place], index);
  }
  void join_seen(const View& other) {
    for (std::size_t place = 0; place < other.seen.size(); ++place) raise(place, other.seen[place]);
  }
  void join(const View& other) {
    join_seen(other);
    for (int thread = 0; thread < kMaxThreads; ++thread)
      steps[thread] = std::max(steps[thread], other.steps[thread]);
  }
};

/// One value in the history of an atomic, and what a thread learns that acquires it.
struct Stored {
  std::uint64_t value = 0;
  View view;
};

struct AtomicPlace {
  std::vector<Stored> history;
  std::uint32_t sequential = 0;  ///< The index of the last sequentially consistent store.
};

struct PlainPlace {
  int writer = -1;
  std::uint32_t written_at = 0;
  std::array<std::uint32_t, kMaxThreads> read_at{};
};

inline bool acquires(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_consume ||
         order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}
inline bool releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

}  // namespace tutti::interleaving
