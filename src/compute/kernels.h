// What each element type offers to combine_function: one kernel an Op, for this machine's best
// instruction set. A new type is one more of these functions and its row in combine.cpp.
#pragma once

#include <array>

#include "compute/combine.h"

namespace tutti {

/// Indexed by Op; null: the type has no such reduction.
using OpKernels = std::array<CombineFunction, kOps>;

OpKernels f32_kernels();
OpKernels f64_kernels();
OpKernels bf16_kernels();
OpKernels int32_kernels();
OpKernels int64_kernels();

}  // namespace tutti
