// Sums of floats in fixed point: the summands become integers, whose sum does not depend on the
// order.
//
// Each element has its own binary point, set by the greatest exponent among its summands. Each
// summand is converted to an integer (with one rounding, which depends on the summand and that
// exponent alone), the integers are summed, and the sum is converted back to a float: a function of
// the multiset of summands alone. Agreeing on a common exponent before summing goes back to Demmel
// and Nguyen, "Fast Reproducible Floating-Point Summation" (ARITH 2013), who split summands at such
// boundaries in floating point.
#pragma once

#include <tutti/types.hpp>

#include "compute/combine.h"

namespace tutti {

/// A sum of more summands might overflow.
inline constexpr int kMostSummands = 1 << 13;

/// Returns the kernel of sum, avg and premul_sum with accumulate = reproducible. Its inputs must be
/// all summands of the result, each once, and at most kMostSummands. Returns null for a type that
/// is not a float, whose sums do not depend on the order anyway. An infinity or NaN among the
/// summands, or a sum out of range, gives what IEEE 754 gives; a sum of zeros is +0. The kernel
/// does not support f32 operands of narrower types (CombineExtras::f32_inputs).
CombineFunction fixed_point_sum(DataType type);

}  // namespace tutti
