// Clocks, which are passed to everything that needs the time: the library uses the steady clock,
// tests use clocks that they set.
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

}  // namespace tutti
