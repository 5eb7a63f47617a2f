// What the reductions do to vectors, how the element types enter and leave them, and the kernels
// made of both. docs/numerics.md states the results; every instruction set gives the same bits.
//
// A reduction (Sum, FloatMin, ...) prepares each input, folds them from the left, and makes the
// result. An element type (Direct, Bfloat16) loads vectors that a reduction can work on and stores
// what comes out.
#include <bit>
#include <limits>
#include <type_traits>

#include "compute/copy-inl.h"
#include "compute/kernels.h"

#if defined(TUTTI_COMPUTE_REDUCTIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_COMPUTE_REDUCTIONS_INL_H_
#undef TUTTI_COMPUTE_REDUCTIONS_INL_H_
#else
#define TUTTI_COMPUTE_REDUCTIONS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

struct Unchanged {
  explicit Unchanged(const CombineArgs& args) { assert(args.divide_by == 1); }
  template <class V>
  HWY_INLINE V prepare(V input) const {
    return input;
  }
  template <class V>
  HWY_INLINE V result(V folded) const {
    return folded;
  }
};

struct Sum : Unchanged {
  using Unchanged::Unchanged;
  template <class V>
  HWY_INLINE V fold(V a, V b) const {
    return hn::Add(a, b);
  }
};

struct Prod : Unchanged {
  using Unchanged::Unchanged;
  template <class V>
  HWY_INLINE V fold(V a, V b) const {
    return hn::Mul(a, b);
  }
};

struct IntegerMin : Unchanged {
  using Unchanged::Unchanged;
  template <class V>
  HWY_INLINE V fold(V a, V b) const {
    return hn::Min(a, b);
  }
};

struct IntegerMax : Unchanged {
  using Unchanged::Unchanged;
  template <class V>
  HWY_INLINE V fold(V a, V b) const {
    return hn::Max(a, b);
  }
};

// Highway's Min leaves NaN and zeros to the instruction set. Here, if neither operand is less, they
// are equal, and differ in their bits only as zeros do, of which the `or` is the negative one; or
// one is NaN, and so is the `or`.
struct FloatMin : Unchanged {
  using Unchanged::Unchanged;
  template <class V>
  HWY_INLINE V fold(V a, V b) const {
    return hn::IfThenElse(hn::Lt(a, b), a, hn::IfThenElse(hn::Lt(b, a), b, hn::Or(a, b)));
  }
};

// The least of the negated, negated.
struct FloatMax : FloatMin {
  using FloatMin::FloatMin;
  template <class V>
  HWY_INLINE V prepare(V input) const {
    return hn::Neg(input);
  }
  template <class V>
  HWY_INLINE V result(V folded) const {
    return hn::Neg(folded);
  }
};

template <class T>
class FloatAvg {
 public:
  explicit FloatAvg(const CombineArgs& args) : divisor_(static_cast<T>(args.divide_by)) {}
  template <class V>
  HWY_INLINE V prepare(V input) const {
    return input;
  }
  template <class V>
  HWY_INLINE V fold(V a, V b) const {
    return hn::Add(a, b);
  }
  template <class V>
  HWY_INLINE V result(V sum) const {
    return hn::Div(sum, hn::Set(hn::DFromV<V>(), divisor_));
  }

 private:
  T divisor_;
};

// Exact: a quotient of an int32 and a uint32 that is no integer is at least 2^-32 away from one,
// and its f64 is off by less than 2^-22 of that.
struct Int32Divisor {
  explicit Int32Divisor(std::uint32_t divisor) : divisor_(divisor) {}
  HWY_INLINE std::uint32_t divide(std::uint32_t sum) const {
    return static_cast<std::uint32_t>(
        static_cast<std::int32_t>(static_cast<std::int32_t>(sum) / divisor_));
  }

 private:
  double divisor_;
};

// A 64-bit division takes up to 90 cycles; multiplying by the rounded-up reciprocal 2^(63 + shift)
// / divisor and shifting takes 4, and is exact for magnitudes up to 2^63 (Granlund and Montgomery,
// "Division by invariant integers using multiplication", 1994).
class Int64Divisor {
 public:
  explicit Int64Divisor(std::uint32_t divisor)
      : shift_(static_cast<int>(std::bit_width(divisor - 1))),
        reciprocal_(static_cast<std::uint64_t>((Wide{1} << (63 + shift_)) / divisor) + 1) {
    assert(divisor >= 2);
  }
  HWY_INLINE std::uint64_t divide(std::uint64_t sum) const {
    const std::uint64_t sign = std::uint64_t{0} - (sum >> 63);
    const std::uint64_t magnitude = (sum ^ sign) - sign;
    const auto quotient =
        static_cast<std::uint64_t>(Wide{magnitude} * reciprocal_ >> 64) >> (shift_ - 1);
    return (quotient ^ sign) - sign;
  }

 private:
  __extension__ using Wide = unsigned __int128;

  int shift_;
  std::uint64_t reciprocal_;
};

// Highway has no integer division: the sum leaves its register, and comes back.
template <class Divisor>
class IntegerAvg {
 public:
  explicit IntegerAvg(const CombineArgs& args) : divisor_(args.divide_by) {}
  template <class V>
  HWY_INLINE V prepare(V input) const {
    return input;
  }
  template <class V>
  HWY_INLINE V fold(V a, V b) const {
    return hn::Add(a, b);
  }
  template <class V>
  HWY_INLINE V result(V sum) const {
    const hn::DFromV<V> d;
    HWY_ALIGN hn::TFromD<hn::DFromV<V>> lanes[hn::MaxLanes(d)];
    hn::Store(sum, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = divisor_.divide(lanes[i]);
    return hn::Load(d, lanes);
  }

 private:
  Divisor divisor_;
};

// One NaN for all: which operand's NaN survives an addition depends on the order in which the
// compiler writes the operands down, and ranks must not differ in their bits.
template <class V>
HWY_INLINE V with_one_nan(V v) {
  const hn::DFromV<V> d;
  using T = hn::TFromD<hn::DFromV<V>>;
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, std::numeric_limits<T>::quiet_NaN()), v);
}

template <class Load, class Reduction, class D, class T, int kIn>
HWY_INLINE auto fold_inputs(const Reduction& reduction, D d, const Inputs<T, kIn>& in,
                            std::size_t i) {
  auto folded = reduction.prepare(Load::load(d, in[0] + i));
  for (int j = 1; j < in.count(); ++j)
    folded = reduction.fold(folded, reduction.prepare(Load::load(d, in[j] + i)));
  return reduction.result(folded);
}

// An element type on which the vector unit computes as it lies in memory.
template <class T, class Reduction>
class Direct {
 public:
  using Stored = T;

  explicit Direct(const CombineArgs& args) : reduction_(args) {}
  template <class D, int kIn>
  HWY_INLINE auto combine(D d, const Inputs<T, kIn>& in, std::size_t i) const {
    const auto v = fold_inputs<Whole>(reduction_, d, in, i);
    if constexpr (std::is_floating_point_v<T>)
      return with_one_nan(v);
    else
      return v;
  }

 private:
  struct Whole {
    template <class D>
    static HWY_INLINE auto load(D d, const T* from) {
      return hn::LoadU(d, from);
    }
  };

  Reduction reduction_;
};

// The upper half of an f32, so that the even and the odd elements of a vector each become a vector
// of f32 with one instruction and without changing places. Highway 1.0.3's own conversion cuts the
// lower half off, which is not rounding.
template <class Reduction>
class Bfloat16 {
 public:
  using Stored = std::uint16_t;

  explicit Bfloat16(const CombineArgs& args) : reduction_(args) {}
  template <class D, int kIn>
  HWY_INLINE auto combine(D d, const Inputs<Stored, kIn>& in, std::size_t i) const {
    if constexpr (hn::MaxLanes(D()) == 1) {
      const auto bits = rounded(fold_inputs<Single>(reduction_, d, in, i));
      const hn::Rebind<std::int32_t, D> di32;
      return hn::DemoteTo(d, hn::BitCast(di32, hn::ShiftRight<16>(bits)));
    } else {
      const auto even = rounded(fold_inputs<Even>(reduction_, d, in, i));
      const auto odd = rounded(fold_inputs<Odd>(reduction_, d, in, i));
      return hn::BitCast(d, hn::Or(hn::ShiftRight<16>(even), upper_half(odd)));
    }
  }

 private:
  template <class V>
  static HWY_INLINE V upper_half(V bits) {
    return hn::And(bits, hn::Set(hn::DFromV<V>(), 0xFFFF0000u));
  }
  // To nearest even, in the upper half of each lane; beyond the greatest is infinity.
  template <class V>
  static HWY_INLINE auto rounded(V v) {
    const hn::Rebind<std::uint32_t, hn::DFromV<V>> du32;
    const auto bits = hn::BitCast(du32, with_one_nan(v));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1u));
    // NaN is 0x7FC00000: neither addition reaches its upper half.
    return hn::Add(bits, hn::Add(odd, hn::Set(du32, 0x7FFFu)));
  }

  struct Even {
    template <class D>
    static HWY_INLINE auto load(D d, const Stored* from) {
      const hn::Repartition<std::uint32_t, D> du32;
      return as_float(hn::ShiftLeft<16>(hn::BitCast(du32, hn::LoadU(d, from))));
    }
  };
  struct Odd {
    template <class D>
    static HWY_INLINE auto load(D d, const Stored* from) {
      const hn::Repartition<std::uint32_t, D> du32;
      return as_float(upper_half(hn::BitCast(du32, hn::LoadU(d, from))));
    }
  };
  struct Single {
    template <class D>
    static HWY_INLINE auto load(D d, const Stored* from) {
      const hn::Rebind<std::uint32_t, D> du32;
      return as_float(hn::ShiftLeft<16>(hn::PromoteTo(du32, hn::LoadU(d, from))));
    }
  };
  template <class V>
  static HWY_INLINE auto as_float(V bits) {
    return hn::BitCast(hn::Rebind<float, hn::DFromV<V>>(), bits);
  }

  Reduction reduction_;
};

// The common shapes have passes of their own: two inputs (a ring's step, a tree's node) and up to
// four; anything else, streaming too, goes through the pass for any number.
template <class Reduction>
HWY_NOINLINE void reduce_other_shapes(const CombineArgs& args) {
  assert(args.inputs >= 1 && args.outputs >= 1);
  if (args.stream_outputs != 0) return Pass<Reduction, 0, 0>::run(args);
  if (args.inputs == 2 && args.outputs == 2) return Pass<Reduction, 2, 2>::run(args);
  if (args.inputs == 3 && args.outputs == 1) return Pass<Reduction, 3, 1>::run(args);
  if (args.inputs == 4 && args.outputs == 1) return Pass<Reduction, 4, 1>::run(args);
  Pass<Reduction, 0, 0>::run(args);
}

template <class Reduction>
HWY_INLINE void reduce(const CombineArgs& args) {
  if (args.inputs == 2 && args.outputs == 1 && args.stream_outputs == 0) [[likely]]
    return Pass<Reduction, 2, 1>::run_inline(args);
  reduce_other_shapes<Reduction>(args);
}

template <class Reduction>
void kernel(const CombineArgs& args) {
  if (args.inputs == 1) return copy<hwy::MakeUnsigned<typename Reduction::Stored>>(args);
  reduce<Reduction>(args);
}

// Dividing by one is left out: most steps of an average only add.
template <class Sum, class Avg>
void average(const CombineArgs& args) {
  assert(args.divide_by >= 1);
  if (args.divide_by == 1) return kernel<Sum>(args);
  reduce<Avg>(args);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_COMPUTE_REDUCTIONS_INL_H_
