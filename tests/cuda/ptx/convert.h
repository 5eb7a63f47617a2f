// Conversions between the types of PTX, with exactly the results of the instruction cvt.
#pragma once

#include <algorithm>
#include <cfenv>

#include "tests/cuda/ptx/types.h"

namespace tutti::stand_in::ptx {

/// Rounds as `rounding` says to a whole number; rn is to the nearest, or the even one of two.
template <Rounding rounding>
double whole(double value) {
  if constexpr (rounding == Rounding::rz) return std::trunc(value);
  if constexpr (rounding == Rounding::rm) return std::floor(value);
  if constexpr (rounding == Rounding::rp) return std::ceil(value);
  return std::nearbyint(value);
}

/// The bits of the value of a format that is nearest to `value`, which must be exact, or odd in its
/// last bit where it is not.
template <typename Float, Rounding rounding, bool finite>
auto encode(double value) {
  using Bits = decltype(Float::bits);
  if (std::isnan(value)) return static_cast<Bits>(Float::kNotANumber);
  const u32 sign = std::signbit(value) ? Float::kSign : 0;
  const double magnitude = std::fabs(value);
  constexpr u32 kBeyond = finite ? Float::kMost : Float::kInfinity;
  if (std::isinf(value)) return static_cast<Bits>(sign | kBeyond);
  const int exponent = magnitude == 0 ? Float::kLeastExponent
                                      : std::max(std::ilogb(magnitude), Float::kLeastExponent);
  const double scaled = std::ldexp(magnitude, Float::kMantissa - exponent);
  const double fraction = rounding == Rounding::rz ? std::trunc(scaled) : std::nearbyint(scaled);
  // The fraction holds the leading bit, which counts one up in the exponent.
  const u64 bits = (static_cast<u64>(exponent - Float::kLeastExponent) << Float::kMantissa) +
                   static_cast<u64>(fraction);
  if (bits <= Float::kMost) return static_cast<Bits>(sign | static_cast<u32>(bits));
  return static_cast<Bits>(sign | (rounding == Rounding::rz ? Float::kMost : kBeyond));
}

inline f32 to_f32(f16 value) { return static_cast<f32>(f16::value(value.bits)); }
inline f32 to_f32(bf16 value) { return std::bit_cast<f32>(u32{value.bits} << 16); }

inline f64 to_double(f16 value) { return f16::value(value.bits); }
inline f64 to_double(bf16 value) { return static_cast<f64>(to_f32(value)); }
inline f64 to_double(f32 value) { return static_cast<f64>(value); }
inline f64 to_double(f64 value) { return value; }

/// The double next to an integer, with its last bit odd if it is not exact, so that rounding it
/// once more gives what rounding the integer once would have given.
template <typename Integer>
double odd(Integer value) {
  const long double exact = static_cast<long double>(value);
  const double near = static_cast<double>(exact);
  if (static_cast<long double>(near) == exact || (std::bit_cast<u64>(near) & 1) != 0) return near;
  const bool away = (exact > near) == (near > 0);
  return std::bit_cast<double>(std::bit_cast<u64>(near) + (away ? u64{1} : ~u64{0}));
}

template <typename To, Rounding rounding, typename From>
To rounded(From value) {
  if constexpr (rounding == Rounding::rn) return static_cast<To>(value);
  const int before = std::fegetround();
  std::fesetround(rounding == Rounding::rz   ? FE_TOWARDZERO
                  : rounding == Rounding::rm ? FE_DOWNWARD
                                             : FE_UPWARD);
  volatile From exact = value;
  volatile To result = static_cast<To>(exact);
  std::fesetround(before);
  return result;
}

template <typename T>
T canonical(T value) {
  if constexpr (std::is_same_v<T, f32>)
    return std::isnan(value) ? std::bit_cast<f32>(0x7fffffffu) : value;
  return value;
}

/// To a floating-point type, from any.
template <typename To, Rounding rounding, bool finite, typename From>
To to_float(From value) {
  if constexpr (is_half<To>) {
    static_assert(rounding == Rounding::rn || rounding == Rounding::rz);
    if constexpr (std::is_integral_v<From>)
      return To{{encode<To, rounding, finite>(odd(value))}};
    else
      return To{{encode<To, rounding, finite>(to_double(value))}};
  } else if constexpr (is_half<From>) {
    return static_cast<To>(to_double(value));
  } else {
    return canonical(rounded<To, rounding>(value));
  }
}

template <typename T, Rounding rounding, typename From>
T to_integer(From value) {
  const double exact = to_double(value);
  using Limits = std::numeric_limits<T>;
  if (std::isnan(exact)) {
    const bool zero = !std::is_same_v<From, f64> && sizeof(T) < 8;
    return zero ? T(0) : T(Unsigned<sizeof(T)>(1) << (sizeof(T) * 8 - 1));
  }
  const double result = whole<rounding>(exact);
  if (result < static_cast<double>(Limits::min())) return Limits::min();
  if (result >= std::ldexp(1.0, Limits::digits)) return Limits::max();
  return static_cast<T>(result);
}

/// A whole number in a floating-point type.
template <Rounding rounding, typename T>
T integral(T value) {
  if constexpr (is_half<T>)
    return T{{encode<T, Rounding::rn, false>(whole<rounding>(to_double(value)))}};
  else
    return canonical(static_cast<T>(whole<rounding>(static_cast<double>(value))));
}

template <typename To, typename From>
To saturated(From value) {
  using Limits = std::numeric_limits<To>;
  if constexpr (std::is_signed_v<From>) {
    if (value < 0 && std::is_unsigned_v<To>) return 0;
    if (std::is_signed_v<To> && static_cast<s64>(value) < static_cast<s64>(Limits::min()))
      return Limits::min();
  }
  return value > 0 && static_cast<u64>(value) > static_cast<u64>(Limits::max())
             ? Limits::max()
             : static_cast<To>(value);
}

template <typename T>
T between_0_and_1(T value) {
  return value > 0 ? (value < 1 ? value : T(1)) : T(0);
}

inline f32 not_negative(f32 value) { return value < 0 ? 0 : canonical(value); }
template <typename T>
requires is_half<T> T not_negative(T value) {
  const double exact = to_double(value);
  return std::isnan(exact) ? T{{static_cast<u16>(T::kNotANumber)}} : exact > 0 ? value : T{{0}};
}
template <typename T>
requires is_pair<T> T not_negative(T value) {
  return {not_negative(value.low), not_negative(value.high)};
}

/// Two numbers in one register.
template <typename Pair, Rounding rounding, bool relu, bool finite>
auto two(double low, double high) {
  if constexpr (relu) {
    low = low < 0 ? 0 : low;
    high = high < 0 ? 0 : high;
  }
  if constexpr (is_pair<Pair>) {
    using Half = decltype(Pair::low);
    return Pair{Half{{encode<Half, rounding, finite>(low)}},
                Half{{encode<Half, rounding, finite>(high)}}};
  } else {
    static_assert(finite, "PTX has no other conversion to eight bits");
    return static_cast<u16>(encode<Pair, rounding, true>(low) |
                            u32{encode<Pair, rounding, true>(high)} << 8);
  }
}

}  // namespace tutti::stand_in::ptx
