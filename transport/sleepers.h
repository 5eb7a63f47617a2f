// Counts the threads of a rank that sleep, for peers that have to wake them.
#pragma once

#include <cstdint>

#include "common/sync.h"

namespace tutti {

/// The threads of one rank that sleep or are about to, and the number of their latest sleep, in one
/// word that peers may read at any time. Thread-safe.
class Sleepers {
 public:
  /// Announces a sleep. Doorbell says what has to follow.
  void add() noexcept { word_.fetch_add(kSleep + 1, std::memory_order_seq_cst); }
  void remove() noexcept { word_.fetch_sub(1, std::memory_order_release); }

  bool any(std::memory_order order = std::memory_order_seq_cst) const noexcept {
    return (word_.load(order) & kThreads) != 0;
  }
  /// Returns the number of the latest sleep that was announced, or 0 before the first.
  std::uint64_t latest() const noexcept { return word_.load(std::memory_order_relaxed) / kSleep; }

 private:
  static constexpr std::uint64_t kSleep = std::uint64_t{1} << 20, kThreads = kSleep - 1;

  sync::Atomic<std::uint64_t> word_{0};
};

}  // namespace tutti
