// What each element type offers to combine_function: one kernel an Op, for this machine's best
// instruction set. A new type is one more of these functions and its row in combine.cpp.
#pragma once

#include <array>

#include "compute/combine.h"

namespace tutti {

/// Indexed by Op; null: made of others in blocks.cpp, or the type has no such reduction.
using OpKernels = std::array<CombineFunction, kOps>;

OpKernels int8_kernels();
OpKernels uint8_kernels();
OpKernels int16_kernels();
OpKernels uint16_kernels();
OpKernels int32_kernels();
OpKernels uint32_kernels();
OpKernels int64_kernels();
OpKernels uint64_kernels();
OpKernels f16_kernels();
OpKernels bf16_kernels();
OpKernels f32_kernels();
OpKernels f64_kernels();
OpKernels f8e4m3_kernels();
OpKernels f8e5m2_kernels();
OpKernels complex64_kernels();
OpKernels complex128_kernels();
OpKernels bool_kernels();

/// To f32 and back. They read elements as the type lies in memory, at any address, and write whole
/// vectors: f32 buffers end on a multiple of 64 bytes and may be written up to there. What is
/// narrowed holds no NaN but the one that reductions give.
struct Conversion {
  void (*widen)(const void* from, float* to, std::size_t count);
  void (*narrow)(const float* from, void* to, std::size_t count);
};
/// Null pointers for a type that is not held in 16 or 8 bits and computed in f32.
Conversion conversion_of(DataType type);

// In plain C++ (plain.cpp), for pairs that are rare or that no vector unit knows.

/// The sum divided by `divide_by`, toward zero.
template <class T>
void integer_average(const CombineArgs& args);
void byte_product(const CombineArgs& args);
/// Of numbers whose parts are T.
template <class T>
void complex_product(const CombineArgs& args);

/// to[i] = from[i] * scalar, which may be the same memory; a float's NaN becomes the one NaN.
using ScaleFunction = void (*)(const void* from, void* to, std::size_t count, const void* scalar);
/// Null where the type has none: 16- and 8-bit floats are scaled as f32.
ScaleFunction scale_function(DataType type);

/// combine_copy, counted in elements of `element_bytes`.
void copy_elements(const CombineArgs& args, std::size_t element_bytes);

/// The kernel of a type that works on it as it lies in memory; null: there is none.
CombineFunction direct_kernel(DataType type, Op op);

/// Reductions that need something done to their operands before or after: block by block, on the
/// stack. What follows from `args.extras`, of types that are computed in f32, of products and sums.
void combine_in_blocks(const CombineArgs& args, DataType type, Op op);

}  // namespace tutti
