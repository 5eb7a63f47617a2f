// Reductions some of whose operands are multiplied first or hold f32 in place of the type, and
// those of a single input that is not just copied.
#pragma once

#include "compute/cuda/pass.cuh"
#include "compute/cuda/reductions.cuh"

namespace tutti::device {

__device__ inline bool has_bit(std::uint64_t mask, std::uint32_t k) {
  return k < 64 && (mask >> k & 1) != 0;
}

/// Reads the elements of a step's inputs, as they are folded. The product of a narrow float is
/// rounded to the type, as it is in a message, unless an operand of the step holds f32.
template <class Element>
class MarkedInputs {
 public:
  using Stored = typename Element::Stored;
  using Work = typename Element::Work;

  explicit __device__ MarkedInputs(const BlockOperands& operands)
      : operands_(operands),
        rounds_products_(kIsNarrow<Element> && (operands.f32_inputs | operands.f32_outputs) == 0) {
    if (operands.premultiplied_inputs != 0)
      scalar_ = Element::widen(load_element<Stored>(operands.premultiplier));
  }

  /// Returns element i of input k.
  __device__ Work operator()(std::uint32_t k, std::uint64_t i) const {
    const bool wide = kIsNarrow<Element> && has_bit(operands_.f32_inputs, k);
    const Work value =
        wide ? load_element<Work>(operands_.in[k] + i * sizeof(Work))
             : Element::widen(load_element<Stored>(operands_.in[k] + i * sizeof(Stored)));
    if (!has_bit(operands_.premultiplied_inputs, k)) return value;
    const Work product = Product<Element>().fold(value, scalar_);
    return rounds_products_ ? Element::widen(Element::narrow(product)) : product;
  }

 private:
  const BlockOperands& operands_;
  const bool rounds_products_;
  Work scalar_{};
};

// Other types than narrow floats have marked operands in premultiplied sums alone.
template <class Element>
__device__ typename Element::Work fold_marked(Op op, typename Element::Work a,
                                              typename Element::Work b) {
  if constexpr (kIsNarrow<Element>) {
    if (op == Op::prod) return Product<Element>().fold(a, b);
    if (op == Op::min) return Extreme<Element, false>().fold(a, b);
    if (op == Op::max) return Extreme<Element, true>().fold(a, b);
  }
  return Sum<Element>().fold(a, b);
}

template <class Element>
__device__ void store_marked(const BlockOperands& operands, std::uint64_t i,
                             typename Element::Work value) {
  using Stored = typename Element::Stored;
#pragma unroll 1
  for (std::uint32_t k = 0; k < operands.outputs; ++k) {
    if (kIsNarrow<Element> && has_bit(operands.f32_outputs, k))
      store_element(operands.out[k] + i * sizeof value, with_one_nan(value));
    else
      store_element(operands.out[k] + i * sizeof(Stored), Element::narrow(value));
  }
}

/// Reduces one element after the other.
template <class Element>
__device__ void reduce_marked(const BlockOperands& operands, std::uint64_t count, Op op) {
  const MarkedInputs<Element> inputs(operands);
  const std::uint64_t threads = all_threads();
#pragma unroll 1
  for (std::uint64_t i = own_thread(); i < count; i += threads) {
    typename Element::Work folded = inputs(0, i);
#pragma unroll 1
    for (std::uint32_t k = 1; k < operands.inputs; ++k)
      folded = fold_marked<Element>(op, folded, inputs(k, i));
    if (operands.divide_by != 1) folded = Average<Element>(operands.divide_by).result(folded);
    store_marked<Element>(operands, i, folded);
  }
}

}  // namespace tutti::device
