// The kernels of each element type, from which combine_function chooses: one kernel for each Op,
// for this machine's best instruction set. A new type adds its case to the function of its file and
// to kernels_of() in combine.cpp.
#pragma once

#include <array>

#include "compute/combine.h"

namespace tutti {

/// The kernels of a type, indexed by Op. An entry is null if the reduction is made from other
/// kernels in blocks.cpp, or if the type has no such reduction.
using OpKernels = std::array<CombineFunction, kOps>;
static_assert(std::tuple_size_v<OpKernels> == static_cast<std::size_t>(Op::logical_or) + 1);

/// Each of these functions gives the kernels of the types that its file computes, and no kernels
/// for any other type.
OpKernels integer_kernels(DataType type);  ///< Integers and truth values.
OpKernels float_kernels(DataType type);    ///< f32, f64, complex64 and complex128.
OpKernels narrow_kernels(DataType type);   ///< 16- and 8-bit floats.

/// Conversion of 16- and 8-bit floats to f32 (`widen`) and back (`narrow`). Elements of the narrow
/// type may lie at any address. Whole vectors of f32 are written: an f32 buffer must extend to a
/// multiple of 64 bytes, and may be overwritten up to its end. The only NaN that `narrow` accepts
/// is the canonical NaN, which is the one that reductions return.
struct Conversion {
  void (*widen)(const void* from, float* to, std::size_t count);
  void (*narrow)(const float* from, void* to, std::size_t count);
};
/// The pointers are null for a type that is not a 16- or 8-bit float.
Conversion conversion_of(DataType type);

// Kernels in plain C++ (plain.cpp), for pairs that are rare or that no vector unit supports.

/// Sums, divided by `divide_by` and rounded toward zero.
template <class T>
void integer_average(const CombineArgs& args);
void byte_product(const CombineArgs& args);
/// The product of complex numbers whose parts have type T.
template <class T>
void complex_product(const CombineArgs& args);

/// Computes to[i] = from[i] * scalar. `to` and `from` may be the same memory. A NaN becomes the
/// canonical NaN.
using ScaleFunction = void (*)(const void* from, void* to, std::size_t count, const void* scalar);
/// Returns null if the type has no such function: 16- and 8-bit floats are scaled as f32.
ScaleFunction scale_function(DataType type);

/// Like combine_copy, but `args.count` is in elements of `element_bytes`.
void copy_elements(const CombineArgs& args, std::size_t element_bytes);

/// Returns the kernel that works on elements of the type as they lie in memory, or null if there is
/// none.
CombineFunction direct_kernel(DataType type, Op op);

/// Computes, block by block on the stack, reductions whose operands must be converted or multiplied
/// first: those with `args.extras`, those of types that are computed in f32, and those that are
/// made from a sum or product.
void combine_in_blocks(const CombineArgs& args, DataType type, Op op);

}  // namespace tutti
