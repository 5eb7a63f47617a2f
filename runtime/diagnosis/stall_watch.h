// Decides when an operation that does not end is reported in the log.
#pragma once

#include <array>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "common/clock.h"

namespace tutti {

/// Watches operations of which one is under way at a time. One thread at a time uses it.
class StallWatch {
 public:
  /// `first` is the time after which an operation is first reported; 0 turns reports off.
  explicit StallWatch(std::chrono::milliseconds first) noexcept : first_(first) {}

  /// Returns when operation `id` is due to be reported. Its wait is counted from the first call of
  /// this function for it; the first report is due `first` later, and each further one when the
  /// operation has taken twice as long as at the report before.
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

  /// Records that the operation has been reported.
  void reported(TimePoint now) noexcept {
    assert(seen_ && now >= since_);
    set_due(now + age(now));
  }
  /// The reasons to delay a report, each of them once: news of ranks that compute is on its way, or
  /// another rank, which has waited for the same, should report first.
  enum class For { news, another };
  /// Delays the report for this reason; returns false if it was delayed for it before.
  bool put_off(For reason) noexcept {
    static_assert(static_cast<std::size_t>(For::another) + 1 == kReasons);
    assert(seen_);
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

  static constexpr std::size_t kReasons = 2;

  const Nanoseconds first_;
  bool seen_ = false;
  std::uint64_t id_ = 0;
  TimePoint since_{};
  TimePoint due_{};
  std::array<bool, kReasons> put_off_{};
};

}  // namespace tutti
