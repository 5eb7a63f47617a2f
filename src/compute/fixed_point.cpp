// Fixed-point sums, see fixed_point.h. Plain loops over blocks without branches, which the compiler
// turns into vectors for each instruction set; a block with an infinity or NaN in it goes element
// by element.
#include "compute/fixed_point.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/prefetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/fixed_point.cpp"
#include "compute/targets.h"
// The order matters: this one includes the present file once for each instruction set.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "compute/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

// Digits of an element whose greatest exponent is that of infinity count infinities: so many
// positive, and 2^16 for each negative one; a NaN counts as both.
constexpr std::int64_t kPositive = 1, kNegative = 1 << 16;
constexpr std::size_t kBlock = 256;

constexpr double power_of_two(std::int64_t exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
}

// The nearest integer, ties to even, of |value| < 2^51.
inline std::int64_t rounded(double value) {
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: the integer lands in the low bits
  return std::bit_cast<std::int64_t>(value + kShift) - std::bit_cast<std::int64_t>(kShift);
}

// f32, and what is computed in it. `Digit` holds kBits below and including the greatest summand's
// first, its sign and room for kMostSummands.
template <class Digit>
struct Single {
  static constexpr int kBits = sizeof(Digit) == 8 ? 48 : 17;
  static constexpr int kDigits = 1;
  static constexpr std::uint8_t kSpecial = 255;
  using Value = float;
  using Exponent = std::uint8_t;

  static std::uint32_t exponent(float value) {
    return std::bit_cast<std::uint32_t>(value) >> 23 & 255;
  }
  // What the last digit stands for is 2^-scale; denormals have the least normal numbers' exponent.
  static std::int64_t scale(std::uint32_t exponent) {
    return kBits - 1 + 127 - static_cast<std::int64_t>(std::max(exponent, 1u));
  }
  static void split(float value, std::uint32_t exponent, Digit* to) {
    to[0] = static_cast<Digit>(rounded(double{value} * power_of_two(scale(exponent))));
  }
  static double sum(const Digit* digits) { return static_cast<double>(digits[0]); }
  static float value(double sum, std::uint32_t exponent) {
    return static_cast<float>(sum * power_of_two(-scale(exponent)));
  }
};

struct Double {
  static constexpr int kBits = 48;  // in each digit
  static constexpr int kDigits = 2;
  static constexpr std::uint16_t kSpecial = 2047;
  using Value = double;
  using Exponent = std::uint16_t;
  using Digit = std::int64_t;

  static std::uint32_t exponent(double value) {
    return static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(value) >> 52 & 2047);
  }
  // In two factors, since one alone may be out of range.
  static std::int64_t scale(std::uint32_t exponent) {
    return kBits - 1 + 1023 - static_cast<std::int64_t>(std::max(exponent, 1u));
  }
  static double scaled(double value, std::int64_t by) {
    return value * power_of_two(by / 2) * power_of_two(by - by / 2);
  }
  static void split(double value, std::uint32_t exponent, Digit* to) {
    const double all = scaled(value, scale(exponent));
    to[0] = rounded(all);
    to[1] = rounded((all - static_cast<double>(to[0])) * power_of_two(kBits));
  }
  static double sum(const Digit* digits) {
    return static_cast<double>(digits[0]) + static_cast<double>(digits[1]) * power_of_two(-kBits);
  }
  static double value(double sum, std::uint32_t exponent) { return scaled(sum, -scale(exponent)); }
};

// The program's values need not be aligned.
template <class Value>
Value load(const void* values, std::size_t i) {
  Value value;
  std::memcpy(&value, static_cast<const std::byte*>(values) + i * sizeof value, sizeof value);
  return value;
}
template <class Value>
void store(Value value, void* values, std::size_t i) {
  std::memcpy(static_cast<std::byte*>(values) + i * sizeof value, &value, sizeof value);
}

// The block of values after the next: large buffers are in no cache.
template <bool kWrite, class Value>
void fetch_ahead(const void* values, std::size_t begin) {
  const char* block = static_cast<const char*>(values) + (begin + 2 * kBlock) * sizeof(Value);
  for (std::size_t byte = 0; byte < kBlock * sizeof(Value); byte += 64)
    kWrite ? fetch_to_write(block + byte) : __builtin_prefetch(block + byte);
}

template <class Format>
void exponents_of(const void* values, std::size_t count, void* exponents) {
  using Value = typename Format::Value;
  auto* to = static_cast<typename Format::Exponent*>(exponents);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    fetch_ahead<false, Value>(values, begin);
    const std::size_t end = std::min(count, begin + kBlock);
    for (std::size_t i = begin; i < end; ++i)
      to[i] = static_cast<typename Format::Exponent>(Format::exponent(load<Value>(values, i)));
  }
}

template <class Exponent>
bool any_special(const Exponent* exponents, std::size_t count, Exponent special) {
  Exponent greatest = 0;
  for (std::size_t i = 0; i < count; ++i) greatest = std::max(greatest, exponents[i]);
  return greatest == special;
}

template <class Format, class Digit>
void count_infinities(typename Format::Value value, Digit* to) {
  std::fill_n(to, Format::kDigits, Digit{0});
  if (std::isnan(value))
    to[0] = static_cast<Digit>(kPositive + kNegative);
  else if (std::isinf(value))
    to[0] = static_cast<Digit>(value > 0 ? kPositive : kNegative);
}

template <class Value>
Value infinity_of(std::int64_t counted) {
  const bool positive = counted % kNegative != 0, negative = counted >= kNegative;
  if (positive && negative) return std::numeric_limits<Value>::quiet_NaN();
  return positive ? std::numeric_limits<Value>::infinity()
                  : -std::numeric_limits<Value>::infinity();
}

template <class Format, class Digit>
void digits_of(const void* values, const void* exponents, std::size_t count, void* digits) {
  using Value = typename Format::Value;
  const auto* greatest = static_cast<const typename Format::Exponent*>(exponents);
  auto* to = static_cast<Digit*>(digits);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = std::min(count, begin + kBlock);
    if (any_special(greatest + begin, end - begin, Format::kSpecial)) {
      for (std::size_t i = begin; i < end; ++i)
        if (greatest[i] == Format::kSpecial)
          count_infinities<Format>(load<Value>(values, i), to + Format::kDigits * i);
        else
          Format::split(load<Value>(values, i), greatest[i], to + Format::kDigits * i);
    } else {
      for (std::size_t i = begin; i < end; ++i)
        Format::split(load<Value>(values, i), greatest[i], to + Format::kDigits * i);
    }
  }
}

template <class Format, class Digit>
void value_of(const void* digits, const void* exponents, std::size_t count, std::uint32_t divide_by,
              void* values) {
  const auto* from = static_cast<const Digit*>(digits);
  const auto* greatest = static_cast<const typename Format::Exponent*>(exponents);
  using Value = typename Format::Value;
  const double divisor = divide_by;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    fetch_ahead<true, Value>(values, begin);
    const std::size_t end = std::min(count, begin + kBlock);
    if (divide_by == 1) {
      for (std::size_t i = begin; i < end; ++i)
        store(Format::value(Format::sum(from + Format::kDigits * i), greatest[i]), values, i);
    } else {
      for (std::size_t i = begin; i < end; ++i)
        store(Format::value(Format::sum(from + Format::kDigits * i) / divisor, greatest[i]), values,
              i);
    }
    if (any_special(greatest + begin, end - begin, Format::kSpecial))
      for (std::size_t i = begin; i < end; ++i)
        if (greatest[i] == Format::kSpecial)
          store(infinity_of<Value>(from[Format::kDigits * i]), values, i);
  }
}

void f32_exponents(const void* values, std::size_t count, void* to) {
  exponents_of<Single<std::int64_t>>(values, count, to);
}
void f32_digits(const void* values, const void* exponents, std::size_t count, void* to) {
  digits_of<Single<std::int64_t>, std::int64_t>(values, exponents, count, to);
}
void f32_values(const void* digits, const void* exponents, std::size_t count, std::uint32_t divide,
                void* to) {
  value_of<Single<std::int64_t>, std::int64_t>(digits, exponents, count, divide, to);
}
void narrow_digits(const void* values, const void* exponents, std::size_t count, void* to) {
  digits_of<Single<std::int32_t>, std::int32_t>(values, exponents, count, to);
}
void narrow_values(const void* digits, const void* exponents, std::size_t count,
                   std::uint32_t divide, void* to) {
  value_of<Single<std::int32_t>, std::int32_t>(digits, exponents, count, divide, to);
}
void f64_exponents(const void* values, std::size_t count, void* to) {
  exponents_of<Double>(values, count, to);
}
void f64_digits(const void* values, const void* exponents, std::size_t count, void* to) {
  digits_of<Double, std::int64_t>(values, exponents, count, to);
}
void f64_values(const void* digits, const void* exponents, std::size_t count, std::uint32_t divide,
                void* to) {
  value_of<Double, std::int64_t>(digits, exponents, count, divide, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(f32_exponents);
HWY_EXPORT(f32_digits);
HWY_EXPORT(f32_values);
HWY_EXPORT(narrow_digits);
HWY_EXPORT(narrow_values);
HWY_EXPORT(f64_exponents);
HWY_EXPORT(f64_digits);
HWY_EXPORT(f64_values);

namespace {

// A type's numbers as f32, a block at a time.
template <DataType type, class Body>
void widened(const void* values, std::size_t count, Body&& body) {
  alignas(64) float block[1024];
  for (std::size_t begin = 0; begin < count; begin += std::size(block)) {
    const std::size_t some = std::min(std::size(block), count - begin);
    conversion_of(type).widen(static_cast<const std::byte*>(values) + begin * size_of(type), block,
                              some);
    body(block, begin, some);
  }
}

template <DataType type>
constexpr FixedPoint narrow() {
  return {DataType::uint8,
          DataType::int32,
          1,
          1,
          [](const void* values, std::size_t count, void* to) {
            widened<type>(values, count, [&](const float* block, std::size_t begin, std::size_t n) {
              HWY_DYNAMIC_DISPATCH(f32_exponents)(block, n, static_cast<std::uint8_t*>(to) + begin);
            });
          },
          [](const void* values, const void* exponents, std::size_t count, void* to) {
            widened<type>(values, count, [&](const float* block, std::size_t begin, std::size_t n) {
              HWY_DYNAMIC_DISPATCH(narrow_digits)
              (block, static_cast<const std::uint8_t*>(exponents) + begin, n,
               static_cast<std::int32_t*>(to) + begin);
            });
          },
          [](const void* digits, const void* exponents, std::size_t count, std::uint32_t divide,
             void* to) {
            alignas(64) float block[1024];
            for (std::size_t begin = 0; begin < count; begin += std::size(block)) {
              const std::size_t some = std::min(std::size(block), count - begin);
              HWY_DYNAMIC_DISPATCH(narrow_values)
              (static_cast<const std::int32_t*>(digits) + begin,
               static_cast<const std::uint8_t*>(exponents) + begin, some, divide, block);
              conversion_of(type).narrow(block, static_cast<std::byte*>(to) + begin * size_of(type),
                                         some);
            }
          }};
}

// Of numbers with `parts` parts.
template <std::size_t parts>
constexpr FixedPoint single() {
  return {DataType::uint8,
          DataType::int64,
          parts,
          parts,
          [](const void* values, std::size_t count, void* to) {
            HWY_DYNAMIC_DISPATCH(f32_exponents)(values, parts * count, to);
          },
          [](const void* values, const void* exponents, std::size_t count, void* to) {
            HWY_DYNAMIC_DISPATCH(f32_digits)(values, exponents, parts * count, to);
          },
          [](const void* digits, const void* exponents, std::size_t count, std::uint32_t divide,
             void* to) {
            HWY_DYNAMIC_DISPATCH(f32_values)(digits, exponents, parts * count, divide, to);
          }};
}

template <std::size_t parts>
constexpr FixedPoint twice() {
  return {DataType::uint16,
          DataType::int64,
          parts,
          2 * parts,
          [](const void* values, std::size_t count, void* to) {
            HWY_DYNAMIC_DISPATCH(f64_exponents)(values, parts * count, to);
          },
          [](const void* values, const void* exponents, std::size_t count, void* to) {
            HWY_DYNAMIC_DISPATCH(f64_digits)(values, exponents, parts * count, to);
          },
          [](const void* digits, const void* exponents, std::size_t count, std::uint32_t divide,
             void* to) {
            HWY_DYNAMIC_DISPATCH(f64_values)(digits, exponents, parts * count, divide, to);
          }};
}

constexpr FixedPoint kF16 = narrow<DataType::f16>(), kBf16 = narrow<DataType::bf16>(),
                     kF8e4m3 = narrow<DataType::f8e4m3>(), kF8e5m2 = narrow<DataType::f8e5m2>(),
                     kF32 = single<1>(), kComplex64 = single<2>(), kF64 = twice<1>(),
                     kComplex128 = twice<2>();

}  // namespace

const FixedPoint* fixed_point_of(DataType type) {
  switch (type) {
    case DataType::f16: return &kF16;
    case DataType::bf16: return &kBf16;
    case DataType::f8e4m3: return &kF8e4m3;
    case DataType::f8e5m2: return &kF8e5m2;
    case DataType::f32: return &kF32;
    case DataType::f64: return &kF64;
    case DataType::complex64: return &kComplex64;
    case DataType::complex128: return &kComplex128;
    default: return nullptr;
  }
}

}  // namespace tutti
#endif
