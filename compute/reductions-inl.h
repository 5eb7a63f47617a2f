// The reductions on vectors, the loads and stores of element types, and the kernels made of both.
// docs/numerics.md states the results, which have the same bits with every instruction set.
//
// A reduction (Sum, Least, ...) prepares each input, folds the inputs from the left, and makes the
// result. An element type (Direct; Narrow in narrow-sums-inl.h) loads vectors on which a reduction
// can work and stores its result.
//
// Operations whose results have the same bits share code: sums, products and logical operations do
// not depend on the sign, a maximum is the minimum of flipped operands, an `or` is the `and` of
// flipped operands. For this reason a reduction may contain a number that is known only at run
// time.
#include <limits>
#include <type_traits>

#include "compute/kernels.h"
#include "compute/pass-inl.h"

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
  template <class V>
  HWY_INLINE V fold(V a, V b) const {
    return hn::Add(a, b);
  }
};

struct Prod : Unchanged {
  template <class V>
  HWY_INLINE V fold(V a, V b) const {
    return hn::Mul(a, b);
  }
};

// Flips each input before and the result after the fold, with -0.0, the sign bit or all bits as the
// mask.
template <class T>
struct Flipped {
  template <class V>
  HWY_INLINE V prepare(V input) const {
    return hn::Xor(input, hn::Set(hn::DFromV<V>(), flip));
  }
  template <class V>
  HWY_INLINE V result(V folded) const {
    return prepare(folded);
  }

  T flip;
};

// The minimum. Integers are compared as unsigned.
//
// For floats, Highway's Min leaves the treatment of NaN and zeros to the instruction set. Here, if
// neither operand is less than the other, either both are equal, and differ in their bits only if
// they are zeros of different sign, whose `or` is the negative zero; or one of them is NaN, and so
// is the `or`.
template <class T>
struct Least : Flipped<T> {
  template <class V>
  HWY_INLINE V fold(V a, V b) const {
    if constexpr (std::is_floating_point_v<T>)
      return hn::IfThenElse(hn::Lt(a, b), a, hn::IfThenElse(hn::Lt(b, a), b, hn::Or(a, b)));
    else
      return hn::Min(a, b);
  }
};

struct BitAnd : Flipped<std::uint8_t> {
  template <class V>
  HWY_INLINE V fold(V a, V b) const {
    return hn::And(a, b);
  }
};

struct BitXor : Unchanged {
  template <class V>
  HWY_INLINE V fold(V a, V b) const {
    return hn::Xor(a, b);
  }
};

// Works on truth values 0 and 1. With `flip` = 1 it computes a logical `and`.
template <class T>
struct LogicalOr {
  template <class V>
  HWY_INLINE V prepare(V input) const {
    const hn::DFromV<V> d;
    return hn::IfThenElse(hn::Eq(input, hn::Zero(d)), hn::Set(d, flip),
                          hn::Set(d, static_cast<T>(flip ^ 1)));
  }
  template <class V>
  HWY_INLINE V fold(V a, V b) const {
    return hn::Or(a, b);
  }
  template <class V>
  HWY_INLINE V result(V folded) const {
    return hn::Xor(folded, hn::Set(hn::DFromV<V>(), flip));
  }

  T flip;
};

template <class T>
struct LogicalXor : LogicalOr<T> {
  template <class V>
  HWY_INLINE V fold(V a, V b) const {
    return hn::Xor(a, b);
  }
};

template <class T>
struct FloatAvg : Sum {
  template <class V>
  HWY_INLINE V result(V sum) const {
    return hn::Div(sum, hn::Set(hn::DFromV<V>(), divisor));
  }

  T divisor;
};

// Replaces every NaN by the canonical NaN. Which operand's NaN survives an addition depends on the
// order in which the compiler writes the operands, and the bits must not differ between ranks.
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

// An element type on which the vector unit computes directly.
template <class T, class Reduction>
struct Direct {
  using Stored = T;

  template <class D, int kIn>
  HWY_INLINE auto combine(D d, const Inputs<T, kIn>& in, std::size_t i) const {
    const auto v = fold_inputs<Whole>(reduction, d, in, i);
    if constexpr (std::is_floating_point_v<T>)
      return with_one_nan(v);
    else
      return v;
  }
  struct Whole {
    template <class D>
    static HWY_INLINE auto load(D d, const T* from) {
      return hn::LoadU(d, from);
    }
  };

  Reduction reduction;
};

// Two inputs and one output (a step of a ring, a node of a tree) have a pass of their own; all
// other shapes, and streaming stores, use the pass for any number of operands.
template <class Reduction>
HWY_INLINE void reduce(const CombineArgs& args, Reduction reduction) {
  assert(args.inputs >= 1 && args.outputs >= 1);
  if (args.inputs == 2 && args.outputs == 1 && args.stream_outputs == 0) [[likely]]
    return Pass<Reduction, 2, 1>::run_inline(args, reduction);
  Pass<Reduction, 0, 0>::run(args, reduction);
}

// Most steps are sums of floats, so other common shapes have passes of their own here.
template <class Reduction>
HWY_NOINLINE void sum_other_shapes(const CombineArgs& args) {
  assert(args.inputs >= 1 && args.outputs >= 1);
  if (args.inputs == 1) return copy_elements(args, sizeof(typename Reduction::Stored));
  if (args.stream_outputs != 0) return Pass<Reduction, 0, 0>::run(args, {});
  if (args.inputs == 2 && args.outputs == 2) return Pass<Reduction, 2, 2>::run(args, {});
  if (args.inputs == 3 && args.outputs == 1) return Pass<Reduction, 3, 1>::run(args, {});
  if (args.inputs == 4 && args.outputs == 1) return Pass<Reduction, 4, 1>::run(args, {});
  Pass<Reduction, 0, 0>::run(args, {});
}
template <class Reduction>
void sum_kernel(const CombineArgs& args) {
  assert(args.divide_by == 1);
  if (args.inputs == 2 && args.outputs == 1 && args.stream_outputs == 0) [[likely]]
    return Pass<Reduction, 2, 1>::run_inline(args, {});
  sum_other_shapes<Reduction>(args);
}

// Reduces with a reduction that contains a number. It is not inlined, so that all kernels that
// differ only in the number share its code.
template <class T, class Reduction>
HWY_NOINLINE void reduce_direct(const CombineArgs& args, Reduction reduction) {
  assert(args.divide_by == 1);
  if (args.inputs == 1) return copy_elements(args, sizeof(T));
  reduce(args, Direct<T, Reduction>{reduction});
}
template <class T, class Reduction>
void kernel(const CombineArgs& args) {
  reduce_direct<T>(args, Reduction());
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_COMPUTE_REDUCTIONS_INL_H_
