// Numbers the frames of a connection. Numbers count modulo 2^16.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>

#include "transport/queue_pair/frame.h"

namespace tutti::qp {

/// Returns how far a number is ahead of another one, which is negative where it is behind.
constexpr int ahead(std::uint16_t number, std::uint16_t of) noexcept {
  return static_cast<std::int16_t>(static_cast<std::uint16_t>(number - of));
}

/// Numbers the frames that leave, and knows which of them are certain to have arrived. There are at
/// most kMostInFlight from the oldest on that is not.
class Sequence {
 public:
  std::uint16_t next() const noexcept { return next_; }
  bool is_full() const noexcept { return ahead(next_, oldest_) == kMostInFlight; }
  std::uint16_t take() noexcept {
    assert(!is_full());
    in_flight_[next_ % kMostInFlight] = true;
    return next_++;
  }
  void has_arrived(std::uint16_t number) noexcept {
    in_flight_[number % kMostInFlight] = false;
    while (oldest_ != next_ && !in_flight_[oldest_ % kMostInFlight]) ++oldest_;
  }

 private:
  std::uint16_t next_ = 0, oldest_ = 0;
  std::array<bool, kMostInFlight> in_flight_{};
};

}  // namespace tutti::qp
