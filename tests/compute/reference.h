// A reference implementation of docs/numerics.md in the simplest form: one element at a time,
// without vectors, and without code of compute/.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <tutti/types.hpp>

namespace tutti {

/// A truth value as it is stored in a buffer, which may be any byte.
struct Truth {
  std::uint8_t byte;
};

template <typename T>
constexpr DataType type_of() {
  if constexpr (std::is_same_v<T, Truth>)
    return DataType::boolean;
  else
    return data_type_of<T>();
}

}  // namespace tutti

namespace tutti::reference {

/// The parameters of a 16- or 8-bit float format.
struct Format {
  int mantissa_bits, bias;
  /// Bit patterns. Values that are too great become `beyond`.
  std::uint32_t greatest, beyond, nan, sign;
};
template <typename T>
inline constexpr bool kIsNarrow = false;
template <typename T>
inline constexpr Format kFormat{};
template <>
inline constexpr bool kIsNarrow<float16> = true;
template <>
inline constexpr Format kFormat<float16>{10, 15, 0x7BFF, 0x7C00, 0x7E00, 0x8000};
template <>
inline constexpr bool kIsNarrow<bfloat16> = true;
template <>
inline constexpr Format kFormat<bfloat16>{7, 127, 0x7F7F, 0x7F80, 0x7FC0, 0x8000};
template <>
inline constexpr bool kIsNarrow<float8_e4m3> = true;
template <>
inline constexpr Format kFormat<float8_e4m3>{3, 7, 0x7E, 0x7F, 0x7F, 0x80};
template <>
inline constexpr bool kIsNarrow<float8_e5m2> = true;
template <>
inline constexpr Format kFormat<float8_e5m2>{2, 15, 0x7B, 0x7C, 0x7E, 0x80};

template <typename T>
float to_float(T value) {
  constexpr Format f = kFormat<T>;
  const std::uint32_t magnitude = value.bits & (f.sign - 1);
  const auto mantissa = static_cast<int>(magnitude & ((1u << f.mantissa_bits) - 1));
  const auto exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  float result = exponent == 0
                     ? std::ldexp(static_cast<float>(mantissa), 1 - f.bias - f.mantissa_bits)
                     : std::ldexp(static_cast<float>(mantissa + (1 << f.mantissa_bits)),
                                  exponent - f.bias - f.mantissa_bits);
  if (magnitude > f.greatest)
    result = magnitude == f.beyond && f.beyond != f.nan ? std::numeric_limits<float>::infinity()
                                                        : std::numeric_limits<float>::quiet_NaN();
  return (value.bits & f.sign) != 0 ? -result : result;
}

/// Rounds to nearest even. The value is counted in units of the last place, which f64 does exactly.
template <typename T>
T nearest(float value) {
  constexpr Format f = kFormat<T>;
  const auto pattern = [](std::uint32_t bits) { return T{static_cast<decltype(T::bits)>(bits)}; };
  if (std::isnan(value)) return pattern(f.nan);
  const std::uint32_t sign = std::signbit(value) ? f.sign : 0;
  const double magnitude = std::fabs(value);
  if (std::isinf(value)) return pattern(f.beyond | sign);
  if (magnitude == 0) return pattern(sign);
  const int exponent = std::max(std::ilogb(magnitude), 1 - f.bias);
  const double units = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  // A unit more than the mantissa can hold carries into the exponent, which is correct.
  const std::int64_t bits = (static_cast<std::int64_t>(exponent + f.bias - 1) << f.mantissa_bits) +
                            static_cast<std::int64_t>(units);
  return pattern((bits > f.greatest ? f.beyond : static_cast<std::uint32_t>(bits)) | sign);
}

/// The type in which reductions of T are computed.
template <typename T>
using Work = std::conditional_t<kIsNarrow<T>, float, T>;
template <typename T>
Work<T> to_work(T value) {
  if constexpr (kIsNarrow<T>)
    return to_float(value);
  else
    return value;
}
template <typename T>
T from_work(Work<T> value) {
  if constexpr (kIsNarrow<T>)
    return nearest<T>(value);
  else
    return value;
}

// Floats.
template <typename T>
T one_nan(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}
template <typename T>
requires std::is_floating_point_v<T> T fold(Op op, T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (op == Op::sum) return a + b;
  if (op == Op::prod) return a * b;
  const bool a_is_less = a == b ? std::signbit(a) : a < b;
  return a_is_less == (op == Op::min) ? a : b;
}
template <typename T>
requires std::is_floating_point_v<T> T finish(T folded, std::uint32_t divide_by) {
  return one_nan(divide_by == 1 ? folded : folded / static_cast<T>(divide_by));
}

// Complex numbers.
template <typename T>
std::complex<T> fold(Op op, std::complex<T> a, std::complex<T> b) {
  if (op == Op::sum) return {a.real() + b.real(), a.imag() + b.imag()};
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}
template <typename T>
std::complex<T> finish(std::complex<T> folded, std::uint32_t divide_by) {
  return {finish(folded.real(), divide_by), finish(folded.imag(), divide_by)};
}

// Integers.
template <typename T>
requires std::is_integral_v<T> T fold(Op op, T a, T b) {
  __extension__ using Wide = unsigned __int128;
  switch (op) {
    case Op::prod: return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));  // wraps
    case Op::min: return std::min(a, b);
    case Op::max: return std::max(a, b);
    case Op::bit_and: return static_cast<T>(a & b);
    case Op::bit_or: return static_cast<T>(a | b);
    case Op::bit_xor: return static_cast<T>(a ^ b);
    case Op::logical_and: return a != 0 && b != 0;
    case Op::logical_or: return a != 0 || b != 0;
    default: return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
}
template <typename T>
requires std::is_integral_v<T> T finish(T folded, std::uint32_t divide_by) {
  __extension__ using Wide = __int128;
  return static_cast<T>(Wide{folded} / Wide{divide_by});
}

// Truth values.
inline Truth fold(Op op, Truth a, Truth b) {
  const bool left = a.byte != 0, right = b.byte != 0;
  switch (op) {
    case Op::prod:
    case Op::min:
    case Op::bit_and:
    case Op::logical_and: return {left && right};
    case Op::bit_xor: return {left != right};
    default: return {left || right};
  }
}
inline Truth finish(Truth folded, std::uint32_t) { return folded; }

/// Reduces one or more operands in the type in which they are computed. A single operand is not
/// folded, but it is divided and its NaN becomes the canonical NaN.
template <typename W>
W reduce(Op op, std::span<const W> operands, std::uint32_t divide_by) {
  const bool sums = op == Op::avg || op == Op::premul_sum;
  W folded = operands[0];
  for (const W operand : operands.subspan(1)) folded = fold(sums ? Op::sum : op, folded, operand);
  return finish(folded, divide_by);
}

}  // namespace tutti::reference
