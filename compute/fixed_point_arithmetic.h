// The arithmetic of sums in fixed point (fixed_point.h), for one element: how a summand becomes
// digits, and digits a float. The kernels of all instruction sets and those of GPUs inline it. The
// compiler must not contract a product and a sum.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "compute/fixed_point.h"

namespace tutti::fixed {

// If the greatest exponent of an element is that of infinity, its digits count infinities instead:
// each positive one adds 1, each negative one adds 2^16, and a NaN counts as one of each.
inline constexpr std::int64_t kPositive = 1, kNegative = 1 << 16;
static_assert(kNegative > kMostSummands * kPositive, "a count of infinities never carries");
static_assert((kNegative + kPositive) * kMostSummands <= std::numeric_limits<std::int32_t>::max());

constexpr double power_of_two(std::int64_t exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
}

// Returns the nearest integer, ties to even. Requires |value| < 2^51.
constexpr std::int64_t rounded(double value) {
  // 1.5 * 2^52: adding it leaves the integer in the low bits of the sum.
  constexpr double kShift = 6755399441055744.0;
  return std::bit_cast<std::int64_t>(value + kShift) - std::bit_cast<std::int64_t>(kShift);
}

// Sums of f32, and of the types that are computed in f32. A digit has room for kBits bits (the
// first of them is the leading bit of the greatest summand), the sign and the carries of
// kMostSummands summands.
template <class Integer>
struct Single {
  using Digit = Integer;
  static constexpr int kBits = sizeof(Digit) == 8 ? 48 : 17;
  static constexpr int kDigits = 1;
  static_assert(kBits + std::bit_width(unsigned{kMostSummands} - 1) + 1 <= 8 * sizeof(Digit));
  static constexpr std::uint8_t kSpecial = 255;
  using Value = float;
  using Exponent = std::uint8_t;

  static constexpr std::uint32_t exponent(float value) {
    return std::bit_cast<std::uint32_t>(value) >> 23 & 255;
  }
  // The last bit of the digit has the value 2^-scale. Denormals have the exponent of the least
  // normal numbers.
  static constexpr std::int64_t scale(std::uint32_t exponent) {
    return kBits - 1 + 127 - static_cast<std::int64_t>(std::max(exponent, 1u));
  }
  static constexpr void add(float value, std::uint32_t exponent, Digit* to) {
    to[0] += static_cast<Digit>(rounded(double{value} * power_of_two(scale(exponent))));
  }
  static constexpr double sum(const Digit* digits) { return static_cast<double>(digits[0]); }
  static constexpr float value(double sum, std::uint32_t exponent) {
    return static_cast<float>(sum * power_of_two(-scale(exponent)));
  }
};

struct Double {
  static constexpr int kBits = 48;  // bits of each digit
  static constexpr int kDigits = 2;
  static constexpr std::uint16_t kSpecial = 2047;
  using Value = double;
  using Exponent = std::uint16_t;
  using Digit = std::int64_t;

  static constexpr std::uint32_t exponent(double value) {
    return static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(value) >> 52 & 2047);
  }
  // The last bit of the first digit has the value 2^-scale. scaled() multiplies by two factors,
  // since a single one may be out of range.
  static constexpr std::int64_t scale(std::uint32_t exponent) {
    return kBits - 1 + 1023 - static_cast<std::int64_t>(std::max(exponent, 1u));
  }
  static constexpr double scaled(double value, std::int64_t by) {
    return value * power_of_two(by / 2) * power_of_two(by - by / 2);
  }
  static constexpr void add(double value, std::uint32_t exponent, Digit* to) {
    const double all = scaled(value, scale(exponent));
    const Digit first = rounded(all);
    to[0] += first;
    to[1] += rounded((all - static_cast<double>(first)) * power_of_two(kBits));
  }
  static constexpr double sum(const Digit* digits) {
    return static_cast<double>(digits[0]) + static_cast<double>(digits[1]) * power_of_two(-kBits);
  }
  static constexpr double value(double sum, std::uint32_t exponent) {
    return scaled(sum, -scale(exponent));
  }
};

template <class Value, class Digit>
constexpr void add_infinity(Value value, Digit* to) {
  constexpr Value kInfinity = std::numeric_limits<Value>::infinity();
  if (value != value)
    to[0] += static_cast<Digit>(kPositive + kNegative);
  else if (value == kInfinity || value == -kInfinity)
    to[0] += static_cast<Digit>(value > 0 ? kPositive : kNegative);
}

template <class Value>
constexpr Value infinity_of(std::int64_t counted) {
  const bool positive = counted % kNegative != 0, negative = counted >= kNegative;
  if (positive && negative) return std::numeric_limits<Value>::quiet_NaN();
  return positive ? std::numeric_limits<Value>::infinity()
                  : -std::numeric_limits<Value>::infinity();
}

}  // namespace tutti::fixed
