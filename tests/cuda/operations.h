// The operations that the kernels of instructions.cu know by number, for nvcc and for the host.
#pragma once

#include <cstdint>

namespace tutti::stand_in {

enum class Operation : int {
  add,
  subtract,
  multiply,
  divide,
  remainder,
  fused,
  least,
  greatest,
  least_or_nan,
  greatest_or_nan,
  root,
  reciprocal,
  negate,
  magnitude,
  compare,  ///< A bit for each of <, <=, ==, !=, >=, > and "neither is NaN".
  upper_product,
  and_,
  or_,
  exclusive_or,
  complement,
  shift_left,
  shift_right,
  count_ones,
  leading_zeros,
  reverse_bits,
  funnel_left,
  funnel_right,
  permute,
  select_bits,  ///< lop3
  extract,      ///< bfe
  insert,       ///< bfi
  wide_sum,     ///< mad.wide
  count
};

/// A mixture of what other kernels do.
struct Record {
  std::uint8_t bytes[4];
  std::uint16_t shorts[3];
  std::int32_t number;
  std::uint64_t wide[5];
  double real;
};

}  // namespace tutti::stand_in
