// Conversion of vectors of 16- and 8-bit floats to vectors of f32, and back. Rounding is to nearest
// even. The only NaN that may be converted back is the one that with_one_nan() returns.
#include "compute/reductions-inl.h"

#if defined(TUTTI_COMPUTE_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_COMPUTE_NARROW_INL_H_
#undef TUTTI_COMPUTE_NARROW_INL_H_
#else
#define TUTTI_COMPUTE_NARROW_INL_H_
#endif

// 1 where the processor has instructions that convert f16.
#undef TUTTI_COMPUTE_F16C
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
#define TUTTI_COMPUTE_F16C 1
#else
#define TUTTI_COMPUTE_F16C 0
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

// The formats. `widen` converts a vector of Stored to f32, `narrow` converts a vector of f32 to
// Stored.

struct Bfloat16 {
  using Stored = std::uint16_t;

  template <class DF, class V>
  static HWY_INLINE auto widen(DF df, V stored) {
    const hn::Rebind<std::uint32_t, DF> du32;
    return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du32, stored)));
  }
  template <class V>
  static HWY_INLINE auto narrow(V v) {
    using DF = hn::DFromV<V>;
    const hn::Rebind<std::int32_t, DF> di32;
    return hn::DemoteTo(hn::Rebind<Stored, DF>(),
                        hn::BitCast(di32, hn::ShiftRight<16>(rounded(v))));
  }
  // The rounded bfloat16 is in the upper half of each lane. Highway 1.0.3's own conversion
  // truncates.
  template <class V>
  static HWY_INLINE auto rounded(V v) {
    const hn::Rebind<std::uint32_t, hn::DFromV<V>> du32;
    const auto bits = hn::BitCast(du32, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1u));
    // The canonical NaN is 0x7FC00000: neither addition carries into its upper half.
    return hn::Add(bits, hn::Add(odd, hn::Set(du32, 0x7FFFu)));
  }
};

#if TUTTI_COMPUTE_F16C
struct Float16 {
  using Stored = std::uint16_t;

  template <class DF, class V>
  static HWY_INLINE auto widen(DF df, V stored) {
    return hn::PromoteTo(df, hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), stored));
  }
  template <class V>
  static HWY_INLINE auto narrow(V v) {
    using DF = hn::DFromV<V>;
    return hn::BitCast(hn::Rebind<Stored, DF>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, DF>(), v));
  }
};
#else
// Highway's own conversion for processors without these instructions neither rounds to even nor
// preserves infinity.
struct Float16 {
  using Stored = std::uint16_t;

  // The exponent's bias is 15 instead of 127; the greatest exponent stands for infinity and NaN.
  // Denormals are given the least normal exponent with its implicit bit, which is then subtracted.
  template <class DF, class V>
  static HWY_INLINE auto widen(DF df, V stored) {
    const hn::Rebind<std::int32_t, DF> di32;
    const hn::Rebind<std::uint32_t, DF> du32;
    const auto bits = hn::PromoteTo(du32, stored);
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du32, 0x8000u)));
    const auto magnitude =
        hn::BitCast(di32, hn::ShiftLeft<13>(hn::And(bits, hn::Set(du32, 0x7FFFu))));
    const auto normal = hn::Add(magnitude, hn::Set(di32, 112 << 23));
    const auto special = hn::Add(magnitude, hn::Set(di32, 224 << 23));
    const auto least = hn::Set(di32, 113 << 23);
    const auto denormal = hn::BitCast(
        di32, hn::Sub(hn::BitCast(df, hn::Add(magnitude, least)), hn::BitCast(df, least)));
    const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di32, 1 << 23)), denormal, normal);
    const auto all = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di32, 31 << 23)), finite, special);
    return hn::BitCast(df, hn::Or(sign, hn::BitCast(du32, all)));
  }
  // Adding 0.5 moves a denormal's last bit, 2^-24, to the last bit of the f32, and so rounds it.
  template <class V>
  static HWY_INLINE auto narrow(V v) {
    using DF = hn::DFromV<V>;
    const DF df;
    const hn::Rebind<std::int32_t, DF> di32;
    const hn::Rebind<std::uint32_t, DF> du32;
    const auto magnitude = hn::BitCast(di32, hn::Abs(v));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di32, 1));
    const auto rounded =
        hn::Add(hn::Sub(magnitude, hn::Set(di32, 112 << 23)), hn::Add(odd, hn::Set(di32, 0xFFF)));
    const auto normal = hn::Min(hn::ShiftRight<13>(rounded), hn::Set(di32, 0x7C00));
    const auto half = hn::Set(df, 0.5f);
    const auto denormal =
        hn::Sub(hn::BitCast(di32, hn::Add(hn::Abs(v), half)), hn::BitCast(di32, half));
    const auto number =
        hn::IfThenElse(hn::Lt(magnitude, hn::Set(di32, 113 << 23)), denormal, normal);
    const auto all =
        hn::IfThenElse(hn::Gt(magnitude, hn::Set(di32, 255 << 23)), hn::Set(di32, 0x7E00), number);
    const auto sign = hn::ShiftRight<16>(hn::And(hn::BitCast(du32, v), hn::Set(du32, 0x80000000u)));
    return hn::DemoteTo(hn::Rebind<Stored, DF>(), hn::Or(all, hn::BitCast(di32, sign)));
  }
};
#endif

// Rounds to kMantissa bits; numbers below 2^-14 are rounded to multiples of the last bit of 2^-14.
// Adding a number whose last bit has the weight of the last bit to keep rounds there, and
// subtracting it again is exact. That number is 1.5 times a power of two, which keeps the sum in
// the same binade when v is negative. It overflows if v is 2^106 or more, and NaN may then result;
// `kInfinity` limits its exponent, so that infinity results.
template <int kMantissa, bool kInfinity, class V>
HWY_INLINE V rounded_to(V v) {
  using DF = hn::DFromV<V>;
  const hn::Rebind<std::int32_t, DF> di32;
  auto exponent = hn::Max(hn::And(hn::BitCast(di32, v), hn::Set(di32, 255 << 23)),
                          hn::Set(di32, (127 - 14) << 23));
  if constexpr (kInfinity) exponent = hn::Min(exponent, hn::Set(di32, (127 + 60) << 23));
  const auto shift =
      hn::BitCast(DF(), hn::Add(exponent, hn::Set(di32, ((23 - kMantissa) << 23) | (1 << 22))));
  return hn::CopySign(hn::Sub(hn::Add(v, shift), shift), v);
}

// The layouts of 8-bit floats. `to_half` converts a byte in the upper half of 16 bits to an f16;
// `from_half` converts an f16 that is already rounded to such a byte.

// OCP E5M2: the byte is the upper half of an f16.
struct E5M2 {
  static constexpr int kMantissa = 2;
  static constexpr bool kInfinity = true;
  static constexpr float kScale = 1;

  template <class V>
  static HWY_INLINE V to_half(V upper) {
    return upper;
  }
  template <class V>
  static HWY_INLINE V from_half(V half) {
    return half;
  }
};

// OCP E4M3FN: an exponent of 4 bits with a bias of 7 instead of 15, and a mantissa of 3 bits. Read
// as an f16, the number is 2^8 times less. NaN has the code that would be 480; numbers that round
// to more than 448, the greatest, become NaN, and so does infinity.
struct E4M3 {
  static constexpr int kMantissa = 3;
  static constexpr bool kInfinity = false;
  static constexpr float kScale = 256;

  template <class V>
  static HWY_INLINE V to_half(V upper) {
    const hn::DFromV<V> du16;
    const hn::Rebind<std::int16_t, hn::DFromV<V>> di16;
    // The arithmetic shift leaves the sign in the two highest bits and the magnitude below.
    const auto bits = hn::BitCast(du16, hn::ShiftRight<1>(hn::BitCast(di16, upper)));
    const auto nan = hn::Set(du16, std::uint16_t{0x3F80});
    return hn::IfThenElse(hn::Eq(hn::And(bits, nan), nan), hn::Set(du16, std::uint16_t{0x7E00}),
                          hn::And(bits, hn::Set(du16, std::uint16_t{0xBFFF})));
  }
  template <class V>
  static HWY_INLINE V from_half(V half) {
    const hn::DFromV<V> du16;
    const auto magnitude = hn::Min(hn::And(half, hn::Set(du16, std::uint16_t{0x7FFF})),
                                   hn::Set(du16, std::uint16_t{0x3F80}));
    return hn::Or(hn::ShiftLeft<1>(magnitude), hn::And(half, hn::Set(du16, std::uint16_t{0x8000})));
  }
};

template <class Layout>
struct Float8 {
  using Stored = std::uint8_t;

  template <class DF, class V>
  static HWY_INLINE auto widen(DF df, V stored) {
    const hn::Rebind<std::uint16_t, DF> du16;
    const auto upper = hn::ShiftLeft<8>(hn::PromoteTo(du16, stored));
    return hn::Mul(Float16::widen(df, Layout::to_half(upper)), hn::Set(df, Layout::kScale));
  }
  template <class V>
  static HWY_INLINE auto narrow(V v) {
    using DF = hn::DFromV<V>;
    const hn::Rebind<std::int16_t, DF> di16;
    const auto half = narrow_to_half(hn::Mul(v, hn::Set(DF(), 1 / Layout::kScale)));
    const auto bits = hn::ShiftRight<8>(Layout::from_half(half));
    return hn::DemoteTo(hn::Rebind<Stored, DF>(), hn::BitCast(di16, bits));
  }
  template <class V>
  static HWY_INLINE auto narrow_to_half(V scaled) {
    return Float16::narrow(rounded_to<Layout::kMantissa, Layout::kInfinity>(scaled));
  }
};
using Float8E5M2 = Float8<E5M2>;
using Float8E4M3 = Float8<E4M3>;

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_COMPUTE_NARROW_INL_H_
