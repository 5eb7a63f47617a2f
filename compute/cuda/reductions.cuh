// The reductions. Each prepares every input, folds the inputs from the left, and makes the result,
// all in the type in which the elements are folded. docs/numerics.md states the results. The
// compiler must not contract a product and a sum (-fmad=false).
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "compute/cuda/elements.cuh"

namespace tutti::device {

template <class Work>
struct Unchanged {
  __device__ Work prepare(Work input) const { return input; }
  __device__ Work result(Work folded) const { return folded; }
};

template <class Element>
struct Sum : Unchanged<typename Element::Work> {
  using Work = typename Element::Work;
  __device__ Work fold(Work a, Work b) const {
    if constexpr (kIsComplex<Element>)
      return {a.real + b.real, a.imaginary + b.imaginary};
    else
      return static_cast<Work>(a + b);
  }
};

// A complex product follows the definition, and each operation is rounded. Integers of 16 bits are
// multiplied as 32-bit ones without a sign, which wrap.
template <class Element>
struct Product : Unchanged<typename Element::Work> {
  using Work = typename Element::Work;
  __device__ Work fold(Work a, Work b) const {
    if constexpr (kIsComplex<Element>)
      return {a.real * b.real - a.imaginary * b.imaginary,
              a.real * b.imaginary + a.imaginary * b.real};
    else if constexpr (kIsInteger<Element>)
      return static_cast<Work>(std::common_type_t<Work, std::uint32_t>{a} * b);
    else
      return a * b;
  }
};

/// The minimum, or the maximum. Floats of which neither is less than the other are equal, and
/// differ only if they are zeros of two signs; or one of them is NaN.
template <class Element, bool kGreatest>
struct Extreme : Unchanged<typename Element::Work> {
  using Work = typename Element::Work;
  __device__ Work fold(Work a, Work b) const {
    if constexpr (kIsInteger<Element>) {
      using Number = typename Element::Number;
      const bool less = static_cast<Number>(a) < static_cast<Number>(b);
      return less != kGreatest ? a : b;
    } else {
      using Bits = std::conditional_t<sizeof(Work) == 8, std::uint64_t, std::uint32_t>;
      if (kGreatest ? a > b : a < b) return a;
      if (kGreatest ? b > a : b < a) return b;
      const auto x = std::bit_cast<Bits>(a), y = std::bit_cast<Bits>(b);
      if (a == b) return std::bit_cast<Work>(kGreatest ? x & y : x | y);
      return a + b;
    }
  }
};

/// The sum, divided. Integers are rounded toward zero.
template <class Element>
struct Average : Sum<Element> {
  using Work = typename Element::Work;
  explicit __device__ Average(std::uint32_t by) : divisor(by) {}
  __device__ Work result(Work sum) const {
    if constexpr (kIsComplex<Element>) {
      using Part = decltype(sum.real);
      return {sum.real / static_cast<Part>(divisor), sum.imaginary / static_cast<Part>(divisor)};
    } else if constexpr (kIsInteger<Element>) {
      using Number = typename Element::Number;
      using Wide = std::conditional_t<
          sizeof(Number) == 8, Number,
          std::conditional_t<std::is_signed_v<Number>, std::int32_t, std::uint32_t>>;
      return static_cast<Work>(static_cast<Wide>(static_cast<Number>(sum)) /
                               static_cast<Wide>(divisor));
    } else {
      return sum / static_cast<Work>(divisor);
    }
  }
  std::uint32_t divisor;  ///< A number of ranks, which is less than 2^31.
};

template <class Element>
struct BitAnd : Unchanged<typename Element::Work> {
  using Work = typename Element::Work;
  __device__ Work fold(Work a, Work b) const { return a & b; }
};
template <class Element>
struct BitOr : Unchanged<typename Element::Work> {
  using Work = typename Element::Work;
  __device__ Work fold(Work a, Work b) const { return a | b; }
};
template <class Element>
struct BitXor : Unchanged<typename Element::Work> {
  using Work = typename Element::Work;
  __device__ Work fold(Work a, Work b) const { return a ^ b; }
};

/// Makes truth values of its inputs, 0 and 1, and folds their bits.
template <class Bitwise>
struct Logical : Bitwise {
  using Work = typename Bitwise::Work;
  __device__ Work prepare(Work input) const { return input != 0 ? Work{1} : Work{0}; }
};

}  // namespace tutti::device
