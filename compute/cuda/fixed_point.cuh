// Sums of floats that do not depend on the order (compute/fixed_point.h), one element after the
// other: the inputs are read twice, once for the greatest exponent and once for the digits.
#pragma once

#include "compute/cuda/marked.cuh"
#include "compute/fixed_point_arithmetic.h"

namespace tutti::device {

template <class Element>
struct FixedPoint {
  using Format =
      std::conditional_t<kIsNarrow<Element>, fixed::Single<std::int32_t>,
                         std::conditional_t<std::is_same_v<typename Element::Work, float>,
                                            fixed::Single<std::int64_t>, fixed::Double>>;
  static constexpr int kParts = 1;
  static __device__ auto part(typename Element::Work value, int) { return value; }
  template <class Value>
  static __device__ typename Element::Work join(const Value* parts) {
    return parts[0];
  }
};
template <class T>
struct FixedPoint<Complex<T>> {
  using Format = typename FixedPoint<Real<T>>::Format;
  static constexpr int kParts = 2;
  static __device__ T part(ComplexNumber<T> value, int p) {
    return p == 0 ? value.real : value.imaginary;
  }
  static __device__ ComplexNumber<T> join(const T* parts) { return {parts[0], parts[1]}; }
};

template <class Element>
__device__ typename Element::Work fixed_point_sum_at(const BlockOperands& operands,
                                                     const MarkedInputs<Element>& inputs,
                                                     std::uint64_t i) {
  using Fixed = FixedPoint<Element>;
  using Format = typename Fixed::Format;
  std::uint32_t greatest[Fixed::kParts] = {};
  typename Format::Digit digits[Fixed::kParts][Format::kDigits] = {};
  typename Format::Value results[Fixed::kParts];
#pragma unroll 1
  for (std::uint32_t k = 0; k < operands.inputs; ++k) {
    const auto value = inputs(k, i);
#pragma unroll
    for (int p = 0; p < Fixed::kParts; ++p)
      greatest[p] = max(greatest[p], Format::exponent(Fixed::part(value, p)));
  }
#pragma unroll 1
  for (std::uint32_t k = 0; k < operands.inputs; ++k) {
    const auto value = inputs(k, i);
#pragma unroll
    for (int p = 0; p < Fixed::kParts; ++p) {
      if (greatest[p] == Format::kSpecial)
        fixed::add_infinity(Fixed::part(value, p), digits[p]);
      else
        Format::add(Fixed::part(value, p), greatest[p], digits[p]);
    }
  }
#pragma unroll
  for (int p = 0; p < Fixed::kParts; ++p) {
    double sum = Format::sum(digits[p]);
    if (operands.divide_by != 1) sum = sum / operands.divide_by;
    results[p] = greatest[p] == Format::kSpecial
                     ? fixed::infinity_of<typename Format::Value>(digits[p][0])
                     : Format::value(sum, greatest[p]);
  }
  return Fixed::join(results);
}

/// Adds all inputs with all threads of the block; Element is a float or complex.
template <class Element>
__device__ void fixed_point_sum(const BlockOperands& operands, std::uint64_t count) {
  const MarkedInputs<Element> inputs(operands);
  const std::uint64_t threads = all_threads();
#pragma unroll 1
  for (std::uint64_t i = own_thread(); i < count; i += threads)
    store_marked<Element>(operands, i, fixed_point_sum_at<Element>(operands, inputs, i));
}

}  // namespace tutti::device
