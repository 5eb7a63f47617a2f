// Arithmetic and comparisons, with exactly the results of PTX.
#pragma once

#include "tests/cuda/ptx/convert.h"

namespace tutti::stand_in::ptx {

/// Rounds a sum that a double need not hold to one that has an odd last bit if it is not exact.
inline double odd_sum(double x, double y) {
  const double sum = x + y;
  if (!std::isfinite(sum)) return sum;
  const double part = sum - x;
  const double error = (x - (sum - part)) + (y - part);
  if (error == 0 || (std::bit_cast<u64>(sum) & 1) != 0) return sum;
  const bool away = (error > 0) == (sum > 0);
  return std::bit_cast<double>(std::bit_cast<u64>(sum) + (away ? u64{1} : ~u64{0}));
}

template <typename T>
T half(double odd) {
  return T{{encode<T, Rounding::rn, false>(odd)}};
}

template <typename T, typename Function>
T by_halves(T x, T y, Function function) {
  return {function(x.low, y.low), function(x.high, y.high)};
}

template <typename T>
T arithmetic_add(T x, T y) {
  if constexpr (is_pair<T>)
    return by_halves(x, y, [](auto a, auto b) { return arithmetic_add(a, b); });
  else if constexpr (is_half<T>)
    return half<T>(odd_sum(to_double(x), to_double(y)));
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<u64>(x) + static_cast<u64>(y));
  else
    return canonical(x + y);
}

template <typename T>
T arithmetic_neg(T x) {
  if constexpr (is_pair<T>)
    return {arithmetic_neg(x.low), arithmetic_neg(x.high)};
  else if constexpr (is_half<T>)
    return T{{static_cast<u16>(x.bits ^ 0x8000)}};
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(0 - static_cast<u64>(x));
  else
    return -x;
}

template <typename T>
T arithmetic_abs(T x) {
  if constexpr (is_pair<T>)
    return {arithmetic_abs(x.low), arithmetic_abs(x.high)};
  else if constexpr (is_half<T>)
    return T{{static_cast<u16>(x.bits & 0x7fff)}};
  else if constexpr (std::is_integral_v<T>)
    return x < 0 ? arithmetic_neg(x) : x;
  else
    return std::fabs(x);
}

template <typename T>
T arithmetic_sub(T x, T y) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<u64>(x) - static_cast<u64>(y));
  else if constexpr (is_half<T> || is_pair<T>)
    return arithmetic_add(x, arithmetic_neg(y));
  else
    return canonical(x - y);
}

template <typename T>
T product(T x, T y) {
  if constexpr (is_pair<T>)
    return by_halves(x, y, [](auto a, auto b) { return product(a, b); });
  else if constexpr (is_half<T>)
    return half<T>(to_double(x) * to_double(y));
  else
    return canonical(x * y);
}

template <typename T>
T fused(T x, T y, T z) {
  if constexpr (is_pair<T>)
    return {fused(x.low, y.low, z.low), fused(x.high, y.high, z.high)};
  else if constexpr (is_half<T>)
    return half<T>(odd_sum(to_double(x) * to_double(y), to_double(z)));
  else
    return canonical(std::fma(x, y, z));
}

template <typename T>
T quotient(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    if (y == 0)
      return static_cast<T>(~T{0});  // What it is has no name; it does not end the kernel.
    if (std::is_signed_v<T> && static_cast<s64>(y) == -1) return arithmetic_neg(x);
    return static_cast<T>(x / y);
  } else {
    return canonical(x / y);
  }
}
template <typename T>
T remainder(T x, T y) {
  if (y == 0) return x;
  if (std::is_signed_v<T> && static_cast<s64>(y) == -1) return 0;
  return static_cast<T>(x % y);
}
template <typename T>
T square_root(T x) {
  return canonical(std::sqrt(x));
}
template <typename T>
T reciprocal(T x) {
  return canonical(1 / x);
}

// The following are never asked about pairs.
template <typename T>
auto number_of(T x) {
  if constexpr (is_half<T>)
    return to_double(x);
  else
    return x;
}
template <typename T>
bool is_nan(T x) {
  if constexpr (std::is_integral_v<T>)
    return false;
  else
    return std::isnan(number_of(x));
}
template <typename T>
T not_a_number() {
  if constexpr (is_half<T>)
    return T{{static_cast<u16>(T::kNotANumber)}};
  else
    return canonical(std::numeric_limits<T>::quiet_NaN());
}

/// The lesser of two, of which -0 is less than +0. A number is preferred to what is none.
template <typename T, bool least>
T lesser_or_greater(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    return (x < y) == least ? x : y;
  } else {
    if (is_nan(x) && is_nan(y)) return not_a_number<T>();
    if (is_nan(x)) return y;
    if (is_nan(y)) return x;
    const auto a = number_of(x), b = number_of(y);
    if (a == b) return std::signbit(a) == least ? x : y;
    return (a < b) == least ? x : y;
  }
}
template <typename T>
T arithmetic_min(T x, T y) {
  if constexpr (is_pair<T>)
    return by_halves(x, y, [](auto a, auto b) { return arithmetic_min(a, b); });
  else
    return lesser_or_greater<T, true>(x, y);
}
template <typename T>
T arithmetic_max(T x, T y) {
  if constexpr (is_pair<T>)
    return by_halves(x, y, [](auto a, auto b) { return arithmetic_max(a, b); });
  else
    return lesser_or_greater<T, false>(x, y);
}
template <typename T>
T arithmetic_nan_min(T x, T y) {
  if constexpr (is_pair<T>)
    return by_halves(x, y, [](auto a, auto b) { return arithmetic_nan_min(a, b); });
  else
    return is_nan(x) || is_nan(y) ? not_a_number<T>() : arithmetic_min(x, y);
}
template <typename T>
T arithmetic_nan_max(T x, T y) {
  if constexpr (is_pair<T>)
    return by_halves(x, y, [](auto a, auto b) { return arithmetic_nan_max(a, b); });
  else
    return is_nan(x) || is_nan(y) ? not_a_number<T>() : arithmetic_max(x, y);
}
template <typename T>
T arithmetic_and(T x, T y) {
  return static_cast<T>(x & y);
}
template <typename T>
T arithmetic_or(T x, T y) {
  return static_cast<T>(x | y);
}
template <typename T>
T arithmetic_xor(T x, T y) {
  return static_cast<T>(x ^ y);
}

// Comparisons; those with a u also hold where one of the two is not a number.
template <typename T>
bool compare_eq(T x, T y) {
  return number_of(x) == number_of(y);
}
template <typename T>
bool compare_lt(T x, T y) {
  return number_of(x) < number_of(y);
}
template <typename T>
bool compare_nan(T x, T y) {
  return is_nan(x) || is_nan(y);
}
template <typename T>
bool compare_num(T x, T y) {
  return !compare_nan(x, y);
}
template <typename T>
bool compare_ne(T x, T y) {
  return compare_num(x, y) && !compare_eq(x, y);
}
template <typename T>
bool compare_gt(T x, T y) {
  return compare_lt(y, x);
}
template <typename T>
bool compare_le(T x, T y) {
  return number_of(x) <= number_of(y);
}
template <typename T>
bool compare_ge(T x, T y) {
  return compare_le(y, x);
}
template <typename T>
bool compare_lo(T x, T y) {
  return x < y;
}
template <typename T>
bool compare_ls(T x, T y) {
  return x <= y;
}
template <typename T>
bool compare_hi(T x, T y) {
  return x > y;
}
template <typename T>
bool compare_hs(T x, T y) {
  return x >= y;
}
template <typename T>
bool compare_equ(T x, T y) {
  return compare_nan(x, y) || compare_eq(x, y);
}
template <typename T>
bool compare_neu(T x, T y) {
  return !compare_eq(x, y);
}
template <typename T>
bool compare_ltu(T x, T y) {
  return !compare_ge(x, y);
}
template <typename T>
bool compare_leu(T x, T y) {
  return !compare_gt(x, y);
}
template <typename T>
bool compare_gtu(T x, T y) {
  return !compare_le(x, y);
}
template <typename T>
bool compare_geu(T x, T y) {
  return !compare_lt(x, y);
}

}  // namespace tutti::stand_in::ptx
