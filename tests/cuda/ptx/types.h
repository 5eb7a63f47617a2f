// The types of PTX, and their bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace tutti::stand_in::ptx {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using b8 = u8;
using b16 = u16;
using b32 = u32;
using b64 = u64;
using f32 = float;
using f64 = double;

enum class Rounding { rn, rz, rm, rp, ri };

/// A floating-point format with `kMantissa` bits behind the binary point.
template <int mantissa, int least_exponent, u32 infinity, u32 most, u32 not_a_number, typename Bits>
struct Format {
  Bits bits;
  static constexpr int kMantissa = mantissa, kLeastExponent = least_exponent;
  static constexpr u32 kInfinity = infinity;  ///< The format's own, or `not_a_number`.
  static constexpr u32 kMost = most, kNotANumber = not_a_number;
  static constexpr u32 kSign = u32{1} << (sizeof(Bits) * 8 - 1);

  static double value(Bits bits) {
    const u32 magnitude = bits & (kSign - 1);
    const double sign = (bits & kSign) != 0 ? -1 : 1;
    if (magnitude > most)
      return magnitude == infinity && infinity != not_a_number
                 ? sign * std::numeric_limits<double>::infinity()
                 : std::numeric_limits<double>::quiet_NaN();
    const u32 exponent = magnitude >> mantissa;
    const double fraction = magnitude & ((u32{1} << mantissa) - 1);
    if (exponent == 0) return sign * std::ldexp(fraction, least_exponent - mantissa);
    return sign * std::ldexp(fraction + (u32{1} << mantissa),
                             least_exponent - mantissa + static_cast<int>(exponent) - 1);
  }
};
struct f16 : Format<10, -14, 0x7c00, 0x7bff, 0x7fff, u16> {};
struct bf16 : Format<7, -126, 0x7f80, 0x7f7f, 0x7fff, u16> {};
using e4m3x2 = Format<3, -6, 0x7f, 0x7e, 0x7f, u8>;
struct e5m2x2 : Format<2, -14, 0x7c, 0x7b, 0x7f, u8> {};
struct f16x2 {
  f16 low, high;
};
struct bf16x2 {
  bf16 low, high;
};

template <std::size_t bytes>
using Unsigned = std::conditional_t<
    bytes == 1, u8, std::conditional_t<bytes == 2, u16, std::conditional_t<bytes == 4, u32, u64>>>;

template <typename T>
inline constexpr bool is_half = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;
template <typename T>
inline constexpr bool is_pair = std::is_same_v<T, f16x2> || std::is_same_v<T, bf16x2>;

/// The lowest bits of a register as a value of another type.
template <typename T, typename Bits>
T as(Bits bits) {
  return std::bit_cast<T>(static_cast<Unsigned<sizeof(T)>>(bits));
}
template <int width>
u64 low(u64 bits) {
  return width == 64 ? bits : bits & ((u64{1} << width % 64) - 1);
}

/// Puts a value into a register. A signed number fills the register with its sign.
template <typename Register, typename T>
void set(Register& to, T value) {
  if constexpr (std::is_same_v<Register, bool>)
    to = value != 0;
  else if constexpr (std::is_integral_v<T>)
    to = static_cast<Register>(value);
  else
    to = static_cast<Register>(std::bit_cast<Unsigned<sizeof(T)>>(value));
}

inline u64 address(const void* memory) { return reinterpret_cast<u64>(memory); }

}  // namespace tutti::stand_in::ptx
