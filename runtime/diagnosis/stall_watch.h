// When an operation that does not end is to be spoken of.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "common/clock.h"

namespace tutti {

/// Of operations of which one is under way at a time. One thread at a time.
class StallWatch {
 public:
  /// 0: never.
  explicit StallWatch(std::chrono::milliseconds first) noexcept : first_(first) {}

  /// Of operation `id`, which is first seen waiting when it is first asked for: `first` later, then
  /// each time when it has taken twice as long.
  TimePoint due(std::uint64_t id, TimePoint now) noexcept {
    if (first_ == Nanoseconds::zero()) return TimePoint::max();
    if (!seen_ || id != id_) {
      seen_ = true;
      id_ = id;
      since_ = now;
      set_due(now + first_);
    }
    return due_;
  }
  Nanoseconds age(TimePoint now) const noexcept { return now - since_; }

  /// It has been spoken of.
  void reported(TimePoint now) noexcept { set_due(now + age(now)); }
  /// What it may be put off for, once each: news of ranks that compute, and another rank that is to
  /// speak first, after the same.
  enum class For { news, another };
  /// False: there has been time for that.
  bool put_off(For reason) noexcept {
    bool& was = put_off_[static_cast<std::size_t>(reason)];
    if (was) return false;
    was = true;
    due_ += std::chrono::seconds(reason == For::news ? 1 : 2);
    return true;
  }

 private:
  void set_due(TimePoint due) noexcept {
    due_ = due;
    put_off_ = {};
  }

  const Nanoseconds first_;
  bool seen_ = false;
  std::uint64_t id_ = 0;
  TimePoint since_{};
  TimePoint due_{};
  std::array<bool, 2> put_off_{};
};

}  // namespace tutti
