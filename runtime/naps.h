// Decides how the background thread rests while threads of the program wait for all that is
// pending, and so advance it themselves.
#pragma once

#include <chrono>

namespace tutti {

/// A program that waits for its operations as soon as it has started them does not need the
/// background thread, and yet each operation would wake that thread from a sleep, which costs the
/// program a system call and the other thread's time on a core. Once some wakes in a row were
/// needless, the thread naps: it sleeps for short times, at whose ends it looks, and nobody wakes
/// it. It sleeps again once nothing has happened for some naps, and attends to an operation for
/// which nobody waits at the end of the second nap that finds one. For one thread.
class Naps {
 public:
  using Length = std::chrono::microseconds;

  /// The thread was woken from a sleep; `needed` says whether an operation was pending for which no
  /// thread waited.
  void woken(bool needed) noexcept {
    needless_ = needed ? 0 : needless_ + 1;
    if (needless_ < kNeedlessWakes) return;
    needless_ = kNeedlessWakes;
    left_ = kIdleNaps;
    needed_ = 0;
  }
  /// Returns for how long the thread naps next, or zero if it does not. `needed` is as above;
  /// `poked` says whether the program has started an operation since the last call.
  Length next(bool needed, bool poked) noexcept {
    if (left_ == 0) return Length{0};
    if (needed) return after_finding_work(poked);
    needed_ = 0;
    if (poked) left_ = kIdleNaps;
    return --left_ == 0 ? Length{0} : kNap;
  }

 private:
  // The operation may be one that its thread is about to wait for. While the program goes on to
  // start others, that is the likely case, but only for so long.
  Length after_finding_work(bool poked) noexcept {
    ++needed_;
    if (needed_ == 1 || (poked && needed_ < kMostFindings)) return kShortNap;
    left_ = 0;
    needless_ = 0;
    return Length{0};
  }

  static constexpr int kNeedlessWakes = 8, kIdleNaps = 6, kMostFindings = 4;
  static constexpr Length kNap{200}, kShortNap{20};

  int needless_ = 0;  // wakes in a row
  int left_ = 0;      // naps until the thread sleeps, if nothing happens
  int needed_ = 0;    // naps in a row that found an operation for which no thread waited
};

}  // namespace tutti
