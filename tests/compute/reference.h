// What docs/numerics.md says, in the plainest words: one element at a time, no vector, no shared
// code with src/compute.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <tutti/types.hpp>

namespace tutti::reference {

inline float to_float(bfloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

// The nearer of the two neighbours, measured in f64, where both distances are exact.
inline bfloat16 nearest(float value) {
  if (std::isnan(value)) return {0x7FC0};
  const auto toward_zero = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  if (std::isinf(value)) return {toward_zero};
  const auto away = static_cast<std::uint16_t>(toward_zero + 1);
  constexpr double kBeyondGreatest = 0x1p128;  // in place of infinity, which has no distance
  const double lower = std::fabs(to_float({toward_zero}));
  const double upper = std::isinf(to_float({away})) ? kBeyondGreatest : std::fabs(to_float({away}));
  const double below = std::fabs(value) - lower;
  const double above = upper - std::fabs(value);
  if (below != above) return {below < above ? toward_zero : away};
  return {toward_zero % 2 == 0 ? toward_zero : away};
}

template <typename T>
T fold_float(Op op, T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (op == Op::sum || op == Op::avg) return a + b;
  if (op == Op::prod) return a * b;
  const bool a_is_less = a == b ? std::signbit(a) : a < b;
  return a_is_less == (op == Op::min) ? a : b;
}

template <typename T>
T reduce_float(Op op, std::span<const T> operands, std::uint32_t divide_by) {
  T folded = operands[0];
  for (const T operand : operands.subspan(1)) folded = fold_float(op, folded, operand);
  if (divide_by != 1) folded /= static_cast<T>(divide_by);
  return std::isnan(folded) ? std::numeric_limits<T>::quiet_NaN() : folded;
}

template <typename T>
T reduce_integer(Op op, std::span<const T> operands, std::uint32_t divide_by) {
  __extension__ using Wide = __int128;
  T folded = operands[0];
  for (const T operand : operands.subspan(1)) {
    Wide exact = std::min(folded, operand);
    if (op == Op::sum || op == Op::avg) exact = Wide{folded} + operand;
    if (op == Op::prod) exact = Wide{folded} * operand;
    if (op == Op::max) exact = std::max(folded, operand);
    folded = static_cast<T>(exact);  // modulo 2^bits since C++20
  }
  return static_cast<T>(Wide{folded} / Wide{divide_by});
}

template <typename T>
T reduce(Op op, std::span<const T> operands, std::uint32_t divide_by) {
  if (operands.size() == 1 && divide_by == 1) return operands[0];
  if constexpr (std::is_same_v<T, bfloat16>) {
    std::vector<float> floats;
    for (const bfloat16 operand : operands) floats.push_back(to_float(operand));
    return nearest(reduce_float<float>(op, floats, divide_by));
  } else if constexpr (std::is_floating_point_v<T>) {
    return reduce_float(op, operands, divide_by);
  } else {
    return reduce_integer(op, operands, divide_by);
  }
}

}  // namespace tutti::reference
