// Sums of 16- and 8-bit floats in one pass: elements are loaded, added as f32, rounded and stored.
#include "compute/narrow-inl.h"

#if defined(TUTTI_COMPUTE_NARROW_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_COMPUTE_NARROW_SUMS_INL_H_
#undef TUTTI_COMPUTE_NARROW_SUMS_INL_H_
#else
#define TUTTI_COMPUTE_NARROW_SUMS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

template <class D, class V>
HWY_INLINE auto join(D d, V upper, V lower) {
#if HWY_TARGET == HWY_SCALAR  // this target has single elements instead of vectors
  (void)d, (void)upper;
  return lower;
#else
  return hn::Combine(d, upper, lower);
#endif
}

template <class D, class V>
HWY_INLINE auto upper_half(D dh, V v) {
#if HWY_TARGET == HWY_SCALAR
  (void)dh;
  return v;
#else
  return hn::UpperHalf(dh, v);
#endif
}

// An element type that is folded as f32. A vector of 16-bit elements becomes two vectors of f32.
template <class Format, class Reduction>
struct Narrow {
  using Stored = typename Format::Stored;

  template <class D, int kIn>
  HWY_INLINE auto combine(D d, const Inputs<Stored, kIn>& in, std::size_t i) const {
    if constexpr (hn::MaxLanes(D()) == 1) {
      return combine_whole(d, in, i);
    } else {
      const hn::Half<D> dh;
      const auto lower = combine_whole(dh, in, i);
      return join(d, combine_whole(dh, in, i + hn::Lanes(dh)), lower);
    }
  }
  // Requires that a vector has room for hn::Lanes(d) elements of f32.
  template <class D, int kIn>
  HWY_INLINE auto combine_whole(D d, const Inputs<Stored, kIn>& in, std::size_t i) const {
    return Format::narrow(with_one_nan(fold_inputs<Widened>(Reduction(), d, in, i)));
  }

 private:
  struct Widened {
    template <class D>
    static HWY_INLINE auto load(D d, const Stored* from) {
      return Format::widen(hn::Rebind<float, D>(), hn::LoadU(d, from));
    }
  };
};

// Sums of bf16. The elements at even places and those at odd places each become a vector of f32
// with one instruction and without a permutation.
struct SumBfloat16 {
  using Stored = std::uint16_t;

  template <class D, int kIn>
  HWY_INLINE auto combine(D d, const Inputs<Stored, kIn>& in, std::size_t i) const {
    if constexpr (hn::MaxLanes(D()) == 1) {
      return Narrow<Bfloat16, Sum>().combine_whole(d, in, i);
    } else {
      const auto even = Bfloat16::rounded(with_one_nan(fold_inputs<Even>(Sum(), d, in, i)));
      const auto odd = Bfloat16::rounded(with_one_nan(fold_inputs<Odd>(Sum(), d, in, i)));
      return hn::BitCast(d, hn::Or(hn::ShiftRight<16>(even), upper(odd)));
    }
  }

 private:
  template <class V>
  static HWY_INLINE V upper(V bits) {
    return hn::And(bits, hn::Set(hn::DFromV<V>(), 0xFFFF0000u));
  }
  struct Even {
    template <class D>
    static HWY_INLINE auto load(D d, const Stored* from) {
      const hn::Repartition<std::uint32_t, D> du32;
      const auto bits = hn::ShiftLeft<16>(hn::BitCast(du32, hn::LoadU(d, from)));
      return hn::BitCast(hn::Repartition<float, D>(), bits);
    }
  };
  struct Odd {
    template <class D>
    static HWY_INLINE auto load(D d, const Stored* from) {
      const hn::Repartition<std::uint32_t, D> du32;
      const auto bits = upper(hn::BitCast(du32, hn::LoadU(d, from)));
      return hn::BitCast(hn::Repartition<float, D>(), bits);
    }
  };
};

// Sums of 8-bit floats. The bytes at even places and those at odd places each become the upper
// halves of 16-bit lanes without a permutation. They are added as if they were the upper half of an
// f16: for E4M3 that is a factor of 2^8, which is the same for all summands and the sum.
template <class Layout>
struct Sum8 {
  using Stored = std::uint8_t;

  template <class D, int kIn>
  HWY_INLINE auto combine(D d, const Inputs<Stored, kIn>& in, std::size_t i) const {
    if constexpr (HWY_TARGET == HWY_SCALAR || hn::MaxLanes(D()) < 4) {
      return Narrow<Float8<Layout>, Sum>().combine_whole(d, in, i);
    } else {
      const hn::Repartition<std::uint16_t, D> du16;
      const auto even = both_halves<false>(du16, d, in, i);
      const auto odd = both_halves<true>(du16, d, in, i);
      return hn::BitCast(d, hn::Or(hn::ShiftRight<8>(even), odd));
    }
  }

 private:
  template <bool kOdd, bool kUpper>
  struct Quarter {
    template <class D>
    static HWY_INLINE auto load(D d, const Stored* from) {
      const hn::Repartition<std::uint16_t, D> du16;
      const auto bytes = hn::BitCast(du16, hn::LoadU(d, from));
      const auto upper = [&] {
        if constexpr (kOdd)
          return hn::And(bytes, hn::Set(du16, std::uint16_t{0xFF00}));
        else
          return hn::ShiftLeft<8>(bytes);
      }();
      const auto all = Layout::to_half(upper);
      const hn::Half<hn::Repartition<std::uint16_t, D>> dh;
      const hn::Rebind<float, decltype(dh)> df;
      if constexpr (kUpper)
        return Float16::widen(df, upper_half(dh, all));
      else
        return Float16::widen(df, hn::LowerHalf(dh, all));
    }
  };
  template <bool kOdd, class DU16, class D, int kIn>
  static HWY_INLINE auto both_halves(DU16 du16, D d, const Inputs<Stored, kIn>& in, std::size_t i) {
    const auto lower = sum<Quarter<kOdd, false>>(d, in, i);
    return Layout::from_half(join(du16, sum<Quarter<kOdd, true>>(d, in, i), lower));
  }
  template <class Load, class D, int kIn>
  static HWY_INLINE auto sum(D d, const Inputs<Stored, kIn>& in, std::size_t i) {
    const auto v = fold_inputs<Load>(Sum(), d, in, i);
    // In a format without infinities, every NaN comes from to_half(), which returns the canonical
    // NaN.
    if constexpr (Layout::kInfinity)
      return Float8<Layout>::narrow_to_half(with_one_nan(v));
    else
      return Float8<Layout>::narrow_to_half(v);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_COMPUTE_NARROW_SUMS_INL_H_
