// The doorbell: an eventfd by which peers wake this process, and the barrier that lets them look
// for sleepers without a fence of their own.
#pragma once

#include <cstdint>

#include "common/fd.h"
#include "common/sync.h"
#include "transport/sleepers.h"

namespace tutti {

/// The doorbell of this process. Thread-safe.
///
/// The following protocol ensures that no thread sleeps through a message. A thread that is about
/// to sleep adds itself to the `sleepers` of its status pages, calls sleep_barrier(), looks for
/// messages once more, and only then waits for fd(). A peer posts and then reads `sleepers`. Either
/// the peer sees the sleeper and rings, or its post came before the barrier and the sleeper's last
/// look finds it. (This is Dekker's store-buffer pattern with the whole cost on the sleeper: about
/// 20 us there, against 27 ns for a fence at every post.) One ring wakes all whose sleep was
/// announced before it, so a peer rings once for each sleep, however many messages it posts until
/// the thread that it has woken gets a core.
class Doorbell {
 public:
  /// Registers the process for membarrier(2). Throws `unavailable` where no eventfd can be made.
  Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  /// Returns a descriptor that is readable once a peer or a thread has rung since the last clear().
  int fd() const noexcept { return fd_.get(); }

  /// Whether sleep_barrier() reaches other processes. Where it does not (an old kernel, a seccomp
  /// filter), peers must fence, which PeerBell::fence tells them.
  bool membarrier() const noexcept { return membarrier_; }

  void sleep_barrier() const noexcept;
  void ring() const noexcept;
  void clear() const noexcept;

 private:
  const Fd fd_;
  bool membarrier_ = false;
};

/// Wakes the rank at the other end of a channel. `sleepers` is read after every post, without a
/// fence where both ends have membarrier(2) (see Doorbell); elsewhere `fence` is set. For one
/// thread at a time.
struct PeerBell {
  /// They lie on the peer's status page. Null where nobody ever sleeps, because one thread runs
  /// all ranks.
  const Sleepers* sleepers = nullptr;
  int event_fd = -1;
  bool fence = false;
  std::uint64_t rung_for = 0;  ///< The latest sleep for which this object has rung.

  void after_store() noexcept {
    if (sleepers == nullptr) return;
    if (fence)
      sync::fence(std::memory_order_seq_cst);
    else
      sync::compiler_fence(
          std::memory_order_seq_cst);  // keeps the compiler from reading `sleepers` early
    if (sleepers->any(std::memory_order_relaxed)) [[unlikely]]
      ring();
  }
  void ring() noexcept;
};

}  // namespace tutti
