// Says how long somebody waits.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "common/clock.h"
#include "common/interruptible.h"

namespace tutti {

/// A wait ends at `deadline`, once `given_up`, which may be empty, returns true, or if the thread
/// that waits is interrupted (tutti::Interruptible). That thread asks a few times a second.
struct Patience {
  Patience(TimePoint until, std::function<bool()> is_over = nullptr)  // NOLINT: a deadline is one.
      : deadline(until), given_up(std::move(is_over)) {}

  bool is_given_up() const { return (given_up != nullptr && given_up()) || is_interrupted(); }
  bool over() const { return std::chrono::steady_clock::now() >= deadline || is_given_up(); }
  /// Returns when the thread that waits is to look at over() again.
  TimePoint next_look() const {
    constexpr std::chrono::milliseconds kLook{100};
    if (given_up == nullptr && !can_be_interrupted()) return deadline;
    return std::min<TimePoint>(deadline, std::chrono::steady_clock::now() + kLook);
  }
  Patience at_most_until(TimePoint time) const { return {std::min(deadline, time), given_up}; }

  TimePoint deadline;
  std::function<bool()> given_up;
};

}  // namespace tutti
