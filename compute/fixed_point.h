// Sums of floats in fixed point: integers, whose sum does not depend on any order.
//
// Each element has its own point, set by the greatest exponent among its summands. Each summand is
// made an integer (one rounding, which only the summand and that exponent decide), the integers are
// summed, and the sum is made a float again: a function of the multiset of summands alone. Agreeing
// on a common exponent before summing goes back to Demmel and Nguyen, "Fast Reproducible
// Floating-Point Summation" (ARITH 2013), who split summands at such boundaries in floating point.
#pragma once

#include <tutti/types.hpp>

#include "compute/combine.h"

namespace tutti {

/// More summands might overflow.
inline constexpr int kMostSummands = 1 << 13;

/// The kernel of sum, avg and premul_sum with accumulate = reproducible, whose inputs are all the
/// summands there are, each once, at most kMostSummands. Null for a type that is not a float, and
/// needs none. An infinity or NaN among the summands, or a sum out of range, gives what IEEE 754
/// gives; a sum of zeros is +0. Wide operands it does not know.
CombineFunction fixed_point_sum(DataType type);

}  // namespace tutti
