// A block of threads of a GPU computes a step here. The results are those of compute/combine.h, to
// the bit.
#pragma once

#include "compute/cuda/copy.cuh"
#include "compute/cuda/fixed_point.cuh"
#include "compute/cuda/marked.cuh"
#include "compute/cuda/pass.cuh"
#include "compute/cuda/reductions.cuh"

namespace tutti::device {

/// Whether the one input is copied bit for bit: it is neither multiplied nor divided, and no
/// operand is converted.
template <class Element>
__device__ bool is_copy(const BlockOperands& operands) {
  if (operands.inputs != 1 || operands.divide_by != 1 || has_bit(operands.premultiplied_inputs, 0))
    return false;
  const std::uint64_t all =
      operands.outputs >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << operands.outputs) - 1;
  return (operands.f32_outputs & all) == (has_bit(operands.f32_inputs, 0) ? all : 0);
}

template <class Element>
__device__ void reduce_integers(const BlockOperands& operands, std::uint64_t count, Op op) {
  switch (op) {
    case Op::prod: return reduce_pass<Element>(operands, count, Product<Element>());
    case Op::min: return reduce_pass<Element>(operands, count, Extreme<Element, false>());
    case Op::max: return reduce_pass<Element>(operands, count, Extreme<Element, true>());
    case Op::bit_and: return reduce_pass<Element>(operands, count, BitAnd<Element>());
    case Op::bit_or: return reduce_pass<Element>(operands, count, BitOr<Element>());
    case Op::bit_xor: return reduce_pass<Element>(operands, count, BitXor<Element>());
    case Op::logical_and: return reduce_pass<Element>(operands, count, Logical<BitAnd<Element>>());
    case Op::logical_or: return reduce_pass<Element>(operands, count, Logical<BitOr<Element>>());
    default: return reduce_pass<Element>(operands, count, Sum<Element>());
  }
}

template <class Element>
__device__ void reduce_floats(const BlockOperands& operands, std::uint64_t count, Op op) {
  switch (op) {
    case Op::prod: return reduce_pass<Element>(operands, count, Product<Element>());
    case Op::min: return reduce_pass<Element>(operands, count, Extreme<Element, false>());
    case Op::max: return reduce_pass<Element>(operands, count, Extreme<Element, true>());
    default: return reduce_pass<Element>(operands, count, Sum<Element>());
  }
}

/// The parts of complex numbers are added as if they were elements.
template <class Element>
__device__ void reduce_complex(const BlockOperands& operands, std::uint64_t count, Op op) {
  using Parts = typename Element::Parts;
  if (op == Op::prod) return reduce_pass<Element>(operands, count, Product<Element>());
  if (operands.divide_by != 1)
    return reduce_pass<Parts>(operands, 2 * count, Average<Parts>(operands.divide_by));
  reduce_pass<Parts>(operands, 2 * count, Sum<Parts>());
}

/// For truth values sum, max and bit_or are `or`; prod, min and bit_and are `and`.
__device__ inline void reduce_booleans(const BlockOperands& operands, std::uint64_t count, Op op) {
  switch (op) {
    case Op::prod:
    case Op::min:
    case Op::bit_and:
    case Op::logical_and: return reduce_pass<Boolean>(operands, count, Logical<BitAnd<Boolean>>());
    case Op::bit_xor: return reduce_pass<Boolean>(operands, count, Logical<BitXor<Boolean>>());
    default: return reduce_pass<Boolean>(operands, count, Logical<BitOr<Boolean>>());
  }
}

/// Reduces `count` elements with all threads of the block. The op is one that the type has.
template <class Element>
__device__ void reduce(const BlockOperands& operands, std::uint64_t count, Op op) {
  if (is_copy<Element>(operands))
    return copy_bytes(operands,
                      count * (has_bit(operands.f32_inputs, 0) ? sizeof(typename Element::Work)
                                                               : sizeof(typename Element::Stored)));
  if constexpr (std::is_same_v<Element, Boolean>) {
    reduce_booleans(operands, count, op);
  } else {
    if (operands.marked()) return reduce_marked<Element>(operands, count, op);
    if constexpr (kIsComplex<Element>) {
      reduce_complex<Element>(operands, count, op);
    } else {
      if (operands.divide_by != 1)
        reduce_pass<Element>(operands, count, Average<Element>(operands.divide_by));
      else if constexpr (kIsInteger<Element>)
        reduce_integers<Element>(operands, count, op);
      else
        reduce_floats<Element>(operands, count, op);
    }
  }
}

}  // namespace tutti::device
