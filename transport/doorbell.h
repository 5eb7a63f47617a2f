// The bell that peers ring to wake this process, and the barrier that lets them look for sleepers
// without a fence of their own.
#pragma once

#include <cstdint>

#include "common/sync.h"

namespace tutti {

/// Thread-safe.
///
/// How nobody sleeps through a message: a sleeper counts itself in on its status pages, calls
/// sleep_barrier(), looks once more, and only then waits for fd(). A peer posts, then reads the
/// count. Either the peer sees the count and rings, or its post came before the barrier and the
/// last look finds it (a store buffer, Dekker's way, with the whole cost on the sleeper: about
/// 20 us there against 27 ns for a fence at every post).
class Doorbell {
 public:
  /// Registers the process for membarrier(2). Throws `unavailable` when there is no eventfd.
  Doorbell();
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  /// Readable once somebody has rung since the last clear().
  int fd() const noexcept { return fd_; }

  /// Whether sleep_barrier() reaches other processes. Where it does not (an old kernel, a seccomp
  /// filter), peers must fence: PeerBell::fence.
  bool membarrier() const noexcept { return membarrier_; }

  void sleep_barrier() const noexcept;
  void ring() const noexcept;
  void clear() const noexcept;

 private:
  int fd_ = -1;
  bool membarrier_ = false;
};

/// Wakes the rank at the other end. `sleepers` is read after every post without a fence: a sleeper
/// counts itself in, issues membarrier(2), and looks once more before it sleeps. Where membarrier
/// is missing, `fence` is set.
struct PeerBell {
  const sync::Atomic<std::uint32_t>* sleepers =
      nullptr;  ///< Null: nobody ever sleeps (one thread runs all ranks).
  int event_fd = -1;
  bool fence = false;

  void after_store() const noexcept {
    if (sleepers == nullptr) return;
    if (fence)
      sync::fence(std::memory_order_seq_cst);
    else
      sync::compiler_fence(std::memory_order_seq_cst);  // keeps the compiler from looking early
    if (sleepers->load(std::memory_order_relaxed) != 0) [[unlikely]]
      ring();
  }
  void ring() const noexcept;
};

}  // namespace tutti
