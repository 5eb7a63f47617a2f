// Fixed-point sums (see fixed_point.h), computed in blocks that stay in the first-level cache. The
// loops are plain C++ without branches, which the compiler vectorizes for each instruction set; a
// block that contains an infinity or NaN is processed element by element.
#include "compute/fixed_point.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "common/prefetch.h"
#include "compute/fixed_point_arithmetic.h"

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

using fixed::Double;
using fixed::Single;

constexpr std::size_t kBlock = 512;

// Loads value i. The program's values need not be aligned.
template <class Value>
Value load(const void* values, std::size_t i) {
  Value value;
  std::memcpy(&value, static_cast<const std::byte*>(values) + i * sizeof value, sizeof value);
  return value;
}

template <class Format, class Exponent>
void raise_exponents(const void* values, std::size_t count, Exponent* greatest) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto exponent = Format::exponent(load<typename Format::Value>(values, i));
    greatest[i] = std::max(greatest[i], static_cast<Exponent>(exponent));
  }
}

template <class Format, class Exponent>
bool any_special(const Exponent* greatest, std::size_t count) {
  Exponent any = 0;
  for (std::size_t i = 0; i < count; ++i) any = std::max(any, greatest[i]);
  return any == Format::kSpecial;
}

template <class Format, class Exponent, class Digit>
void add_digits(const void* values, std::size_t count, const Exponent* greatest, bool special,
                Digit* digits) {
  using Value = typename Format::Value;
  if (special) {
    for (std::size_t i = 0; i < count; ++i)
      if (greatest[i] == Format::kSpecial)
        fixed::add_infinity(load<Value>(values, i), digits + Format::kDigits * i);
      else
        Format::add(load<Value>(values, i), greatest[i], digits + Format::kDigits * i);
  } else {
    for (std::size_t i = 0; i < count; ++i)
      Format::add(load<Value>(values, i), greatest[i], digits + Format::kDigits * i);
  }
}

template <class Format, class Exponent, class Digit, class Value>
void take_values(const Digit* digits, std::size_t count, const Exponent* greatest, bool special,
                 std::uint32_t divide_by, Value* values) {
  const double divisor = divide_by;
  if (divide_by == 1) {
    for (std::size_t i = 0; i < count; ++i)
      values[i] = Format::value(Format::sum(digits + Format::kDigits * i), greatest[i]);
  } else {
    for (std::size_t i = 0; i < count; ++i)
      values[i] = Format::value(Format::sum(digits + Format::kDigits * i) / divisor, greatest[i]);
  }
  if (!special) return;
  for (std::size_t i = 0; i < count; ++i)
    if (greatest[i] == Format::kSpecial)
      values[i] = fixed::infinity_of<Value>(digits[Format::kDigits * i]);
}

// Reads the summands and writes the results of a type, one block at a time. An element has kBytes
// bytes and consists of kParts values.
template <DataType kType, std::size_t kBytes, class Value, std::size_t kParts>
class Operands {
 public:
  static constexpr std::size_t kElements = kBlock / kParts;

  explicit Operands(const CombineArgs& args) : args_(args) {
    if (args.extras != nullptr) premultiplied_ = args.extras->premultiplied_inputs;
    if (premultiplied_ != 0) premultiply_.premultiply = args.extras->premultiply;
  }

  // Returns elements [begin, begin + count) of summand k as Values, not necessarily aligned. They
  // are valid until the next call.
  const void* summands(int k, std::size_t begin, std::size_t count) {
    const void* from = static_cast<const std::byte*>(args_.in[k]) + begin * kBytes;
    if (k < 64 && (premultiplied_ >> k & 1) != 0) from = multiplied(from, count);
    if constexpr (kNarrow) {
      conversion_.widen(from, wide_, count);
      from = wide_;
    }
    return from;
  }
  void put(const Value* values, std::size_t begin, std::size_t count) {
    const void* from = values;
    if constexpr (kNarrow) {
      conversion_.narrow(values, held_, count);
      from = held_;
    }
    for (int k = 0; k < args_.outputs; ++k)
      std::memcpy(static_cast<std::byte*>(args_.out[k]) + begin * kBytes, from, count * kBytes);
  }
  // Prefetches the block after the next one: large buffers are in no cache.
  void fetch_ahead(std::size_t begin) const {
    constexpr std::size_t kBlockBytes = kElements * kBytes;
    const std::size_t ahead = begin * kBytes + 2 * kBlockBytes;
    if (ahead + kBlockBytes > args_.count * kBytes) return;
    for (int k = 0; k < args_.inputs; ++k)
      for (std::size_t byte = 0; byte < kBlockBytes; byte += 64)
        __builtin_prefetch(static_cast<const char*>(args_.in[k]) + ahead + byte);
    for (int k = 0; k < std::min(args_.outputs, 64); ++k)
      for (std::size_t byte = 0; (args_.fetch_outputs >> k & 1) != 0 && byte < kBlockBytes;
           byte += 64)
        fetch_to_write(static_cast<const char*>(args_.out[k]) + ahead + byte);
  }

 private:
  static constexpr bool kNarrow = kBytes < sizeof(Value);

  const void* multiplied(const void* from, std::size_t count) {
    void* to = held_;
    combine_function(kType, Op::premul_sum)({.in = &from,
                                             .inputs = 1,
                                             .out = &to,
                                             .outputs = 1,
                                             .count = count,
                                             .extras = &premultiply_});
    return held_;
  }

  const CombineArgs& args_;
  const Conversion conversion_ = conversion_of(kType);
  std::uint64_t premultiplied_ = 0;
  CombineExtras premultiply_{.premultiplied_inputs = 1};
  alignas(64) std::byte held_[kElements * kBytes];
  alignas(64) float wide_[kNarrow ? kBlock : 1];
};

template <DataType kType, std::size_t kBytes, class Format, std::size_t kParts = 1>
void sum(const CombineArgs& args) {
  static_assert(kBlock % kParts == 0);
  assert(args.inputs >= 1 && args.inputs <= kMostSummands && args.outputs >= 1);
  Operands<kType, kBytes, typename Format::Value, kParts> operands(args);
  // These arrays are not members of one struct: GCC 12 then drops stores to `values` (it gets the
  // aliasing of strides that differ wrong).
  alignas(64) typename Format::Exponent greatest[kBlock];
  alignas(64) typename Format::Digit digits[kBlock * Format::kDigits];
  alignas(64) typename Format::Value values[kBlock];
  for (std::size_t begin = 0; begin < args.count; begin += operands.kElements) {
    const std::size_t elements = std::min(operands.kElements, args.count - begin);
    const std::size_t count = elements * kParts;
    operands.fetch_ahead(begin);
    std::fill_n(greatest, count, typename Format::Exponent{0});
    std::fill_n(digits, count * Format::kDigits, typename Format::Digit{0});
    for (int k = 0; k < args.inputs; ++k)
      raise_exponents<Format>(operands.summands(k, begin, elements), count, greatest);
    const bool special = any_special<Format>(greatest, count);
    for (int k = 0; k < args.inputs; ++k)
      add_digits<Format>(operands.summands(k, begin, elements), count, greatest, special, digits);
    take_values<Format>(digits, count, greatest, special, args.divide_by, values);
    operands.put(values, begin, elements);
  }
}

CombineFunction fixed_point_sum(DataType type) {
  switch (type) {
    case DataType::f16: return sum<DataType::f16, 2, Single<std::int32_t>>;
    case DataType::bf16: return sum<DataType::bf16, 2, Single<std::int32_t>>;
    case DataType::f8e4m3: return sum<DataType::f8e4m3, 1, Single<std::int32_t>>;
    case DataType::f8e5m2: return sum<DataType::f8e5m2, 1, Single<std::int32_t>>;
    case DataType::f32: return sum<DataType::f32, 4, Single<std::int64_t>>;
    case DataType::f64: return sum<DataType::f64, 8, Double>;
    case DataType::complex64: return sum<DataType::complex64, 8, Single<std::int64_t>, 2>;
    case DataType::complex128: return sum<DataType::complex128, 16, Double, 2>;
    default: return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(fixed_point_sum);
CombineFunction fixed_point_sum(DataType type) {
  return HWY_DYNAMIC_DISPATCH(fixed_point_sum)(type);
}

}  // namespace tutti
#endif
