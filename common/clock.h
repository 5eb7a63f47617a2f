// Time, handed in: production reads the steady clock, tests turn the hands themselves.
#pragma once

#include <chrono>

namespace tutti {

using TimePoint = std::chrono::steady_clock::time_point;
using Nanoseconds = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

/// A clock that stands still until it is told otherwise. Own thread only.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Nanoseconds by) { now_ += by; }

 private:
  TimePoint now_{};
};

}  // namespace tutti
