// Sums of floats in fixed point: integers, whose sum does not depend on any order.
//
// Each element has its own point, set by the greatest exponent among its summands: the ranks agree
// on that first (a maximum of exponents), then each turns its summand into digits (one rounding,
// which only the summand and that exponent decide), digits are summed as integers, and the sum
// becomes a float again. The result is so a function of the multiset of summands alone. Agreeing on
// a common exponent before summing goes back to Demmel and Nguyen, "Fast Reproducible
// Floating-Point Summation" (ARITH 2013), who split summands at such boundaries in floating point.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tutti/types.hpp>

namespace tutti {

/// How a type's summands are held. Counts are in elements of the type throughout.
struct FixedPoint {
  /// More summands might overflow.
  static constexpr int kMostSummands = 1 << 13;

  DataType exponent;  ///< uint8 or uint16: maxima of them are taken.
  DataType digit;     ///< int32 or int64: sums of them are taken.
  int exponents;      ///< An element has so many (a complex number two),
  int digits;         ///< and so many of these.

  std::size_t exponent_bytes(std::size_t count) const noexcept {
    return count * static_cast<std::size_t>(exponents) * size_of(exponent);
  }
  std::size_t digit_bytes(std::size_t count) const noexcept {
    return count * static_cast<std::size_t>(digits) * size_of(digit);
  }

  void (*exponents_of)(const void* values, std::size_t count, void* exponents);
  /// `exponents`: the greatest of all summands.
  void (*digits_of)(const void* values, const void* exponents, std::size_t count, void* digits);
  /// The sum divided by `divide_by`, rounded to the type; an infinity or NaN among the summands, or
  /// a sum out of range, gives what IEEE 754 gives. A sum of zeros is +0.
  void (*value_of)(const void* digits, const void* exponents, std::size_t count,
                   std::uint32_t divide_by, void* values);
};

/// Null for a type that is not a float, and needs none.
const FixedPoint* fixed_point_of(DataType type);

}  // namespace tutti
