// The element types as the kernels for GPUs compute on them. Each has the type in which elements
// are stored, the type in which they are folded, and the conversions between the two; `narrow`
// gives every NaN as the one that docs/numerics.md states.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <tutti/types.hpp>

namespace tutti::device {

template <class T>
__device__ T with_one_nan(T value) {
  if constexpr (std::is_same_v<T, float>)
    return value == value ? value : std::bit_cast<float>(0x7FC00000u);
  else if constexpr (std::is_same_v<T, double>)
    return value == value ? value : std::bit_cast<double>(0x7FF8000000000000u);
  else
    return value;
}

/// Integers are folded as unsigned numbers, which wrap. T says how they compare and divide.
template <class T>
struct Integer {
  using Stored = std::make_unsigned_t<T>;
  using Work = Stored;
  using Number = T;
  static __device__ Work widen(Stored value) { return value; }
  static __device__ Stored narrow(Work value) { return value; }
};

/// A truth value: any byte but 0 is true.
struct Boolean {
  using Stored = std::uint8_t;
  using Work = std::uint8_t;
  static __device__ Work widen(Stored value) { return value; }
  static __device__ Stored narrow(Work value) { return value; }
};

/// f32 and f64.
template <class T>
struct Real {
  using Stored = T;
  using Work = T;
  static __device__ Work widen(Stored value) { return value; }
  static __device__ Stored narrow(Work value) { return with_one_nan(value); }
};

template <class T>
struct alignas(2 * sizeof(T)) ComplexNumber {
  T real, imaginary;
};
template <class T>
__device__ ComplexNumber<T> with_one_nan(ComplexNumber<T> value) {
  return {with_one_nan(value.real), with_one_nan(value.imaginary)};
}
template <class T>
struct Complex {
  using Stored = ComplexNumber<T>;
  using Work = Stored;
  using Parts = Real<T>;
  static __device__ Work widen(Stored value) { return value; }
  static __device__ Stored narrow(Work value) { return with_one_nan(value); }
};

// Floats of 16 and 8 bits are folded as f32 and rounded to nearest even.

struct Float16 {
  using Stored = std::uint16_t;
  using Work = float;
  static __device__ float widen(std::uint16_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
  static __device__ std::uint16_t narrow(float value) {
    std::uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return value == value ? bits : std::uint16_t{0x7E00};
  }
};

struct Bfloat16 {
  using Stored = std::uint16_t;
  using Work = float;
  static __device__ float widen(std::uint16_t bits) {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }
  static __device__ std::uint16_t narrow(float value) {
    std::uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return value == value ? bits : std::uint16_t{0x7FC0};
  }
};

/// Rounds the magnitude of a float to a format with a mantissa and a bias of its own, and returns
/// its code, whose exponent may be greater than the format has room for. The least normal number
/// and all below are rounded by an addition: the last bit of the sum has the weight of the
/// format's.
template <int kMantissa, int kBias>
__device__ std::uint32_t rounded_code(float magnitude) {
  constexpr int kDropped = 23 - kMantissa;
  constexpr std::uint32_t kLeastNormal = (127u + 1 - kBias) << 23;
  constexpr float kShift = std::bit_cast<float>((127u + 1 - kBias + kDropped) << 23);
  const auto bits = std::bit_cast<std::uint32_t>(magnitude);
  if (bits < kLeastNormal)
    return std::bit_cast<std::uint32_t>(magnitude + kShift) - std::bit_cast<std::uint32_t>(kShift);
  const std::uint32_t odd = bits >> kDropped & 1;
  const std::uint32_t rounded = bits + ((1u << (kDropped - 1)) - 1) + odd;
  return (rounded >> kDropped) - ((127u - kBias) << kMantissa);
}

__device__ inline std::uint8_t with_sign_of(float value, std::uint32_t code) {
  return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(value) >> 31 << 7 | code);
}

/// OCP E5M2: a byte is the upper half of an f16.
struct Float8E5M2 {
  using Stored = std::uint8_t;
  using Work = float;
  static __device__ float widen(std::uint8_t bits) {
    return Float16::widen(static_cast<std::uint16_t>(bits << 8));
  }
  static __device__ std::uint8_t narrow(float value) {
    if (value != value) return 0x7E;
    const std::uint32_t code = rounded_code<2, 15>(fabsf(value));
    return with_sign_of(value, code < 0x7C ? code : 0x7C);
  }
};

/// OCP E4M3FN: there is no infinity, and what rounds to more than 448 becomes NaN. Read as an f16,
/// the number is 2^8 times less.
struct Float8E4M3 {
  using Stored = std::uint8_t;
  using Work = float;
  static __device__ float widen(std::uint8_t bits) {
    const std::uint32_t magnitude = bits & 0x7Fu;
    if (magnitude == 0x7F) return std::bit_cast<float>(0x7FC00000u);
    return Float16::widen(static_cast<std::uint16_t>((bits & 0x80u) << 8 | magnitude << 7)) * 256;
  }
  static __device__ std::uint8_t narrow(float value) {
    if (value != value) return 0x7F;
    const std::uint32_t code = rounded_code<3, 7>(fabsf(value));
    return with_sign_of(value, code < 0x7F ? code : 0x7F);
  }
};

/// Stands for the type of programs that only copy.
struct BytesOnly {};

template <class Element>
inline constexpr bool kIsInteger = false;
template <class T>
inline constexpr bool kIsInteger<Integer<T>> = true;
template <class Element>
inline constexpr bool kIsComplex = false;
template <class T>
inline constexpr bool kIsComplex<Complex<T>> = true;
/// A float of 16 or 8 bits.
template <class Element>
inline constexpr bool kIsNarrow = false;
template <>
inline constexpr bool kIsNarrow<Float16> = true;
template <>
inline constexpr bool kIsNarrow<Bfloat16> = true;
template <>
inline constexpr bool kIsNarrow<Float8E4M3> = true;
template <>
inline constexpr bool kIsNarrow<Float8E5M2> = true;

template <class Element>
inline constexpr bool kComputes = !std::is_same_v<Element, BytesOnly>;
/// Whether its sums depend on the order, so that there are sums in fixed point.
template <class Element>
inline constexpr bool kRounds =
    kComputes<Element> && !kIsInteger<Element> && !std::is_same_v<Element, Boolean>;

}  // namespace tutti::device
