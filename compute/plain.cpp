// Kernels in plain C++, for pairs of type and reduction that are rare or that no vector unit
// supports.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
#include <type_traits>

#include "compute/kernels.h"

namespace tutti {
namespace {

// Folds one block at a time in local arrays, so that the compiler knows that they do not overlap.
template <class T, class Fold, class Finish>
void fold_plainly(const CombineArgs& args, Fold fold, Finish finish) {
  assert(args.inputs >= 1 && args.outputs >= 1);
  constexpr std::size_t kBlock = 2048 / sizeof(T);
  static_assert(std::is_trivially_copyable_v<T> && kBlock > 0);
  assert(args.inputs >= 1 && args.outputs >= 1);
  T folded[kBlock], operand[kBlock];
  for (std::size_t begin = 0, n = 0; begin < args.count; begin += n) {
    n = std::min(kBlock, args.count - begin);
    const auto read = [&](int j, T* to) {
      std::memcpy(to, static_cast<const T*>(args.in[j]) + begin, n * sizeof(T));
    };
    read(0, folded);
    for (int j = 1; j < args.inputs; ++j) {
      read(j, operand);
      for (std::size_t i = 0; i < n; ++i) folded[i] = fold(folded[i], operand[i]);
    }
    for (std::size_t i = 0; i < n; ++i) folded[i] = finish(folded[i]);
    for (int k = 0; k < args.outputs; ++k)
      std::memcpy(static_cast<T*>(args.out[k]) + begin, folded, n * sizeof(T));
  }
}

// Division by way of f64, which is exact: a quotient of 32-bit integers that is not an integer
// itself is at least 2^-32 away from one, and the error of its f64 is less than 2^-21 of that.
template <class T>
class Divisor {
 public:
  explicit Divisor(std::uint32_t divisor) : divisor_(divisor) {}
  T operator()(T sum) const {
    // A type that holds T and to which f64 converts with one instruction.
    using Quotient =
        std::conditional_t<std::is_same_v<T, std::uint32_t>, std::int64_t, std::int32_t>;
    return static_cast<T>(static_cast<Quotient>(static_cast<double>(sum) / divisor_));
  }

 private:
  double divisor_;
};

// A 64-bit division takes up to 90 cycles; multiplying by the rounded-up reciprocal, which has 65
// bits and is stored without the highest, and shifting takes 5 (Granlund and Montgomery, "Division
// by invariant integers using multiplication", 1994, figure 4.1).
template <class T>
requires(sizeof(T) == 8) class Divisor<T> {
 public:
  explicit Divisor(std::uint32_t divisor)
      : shift_(static_cast<int>(std::bit_width(divisor - 1))),
        reciprocal_(static_cast<std::uint64_t>((((Wide{1} << shift_) - divisor) << 64) / divisor) +
                    1) {
    assert(divisor >= 2);
  }
  T operator()(T sum) const {
    const std::uint64_t sign = sum < 0 ? ~std::uint64_t{0} : 0;
    const std::uint64_t magnitude = (static_cast<std::uint64_t>(sum) ^ sign) - sign;
    const auto high = static_cast<std::uint64_t>(Wide{magnitude} * reciprocal_ >> 64);
    const std::uint64_t quotient = (high + ((magnitude - high) >> 1)) >> (shift_ - 1);
    return static_cast<T>((quotient ^ sign) - sign);
  }

 private:
  __extension__ using Wide = unsigned __int128;

  int shift_;
  std::uint64_t reciprocal_;
};

template <class T>
struct Complex {
  T real, imaginary;

  // Computes the product by its definition and rounds each operation; a NaN that arises is not
  // corrected.
  friend Complex operator*(Complex a, Complex b) {
    return {a.real * b.real - a.imaginary * b.imaginary,
            a.real * b.imaginary + a.imaginary * b.real};
  }
};

template <class T>
T with_one_nan(T value) {
  if constexpr (std::is_floating_point_v<T>)
    return value == value ? value : std::numeric_limits<T>::quiet_NaN();
  else
    return value;
}
template <class T>
Complex<T> with_one_nan(Complex<T> value) {
  return {with_one_nan(value.real), with_one_nan(value.imaginary)};
}

// Integers are multiplied as unsigned numbers of at least 32 bits, so that they wrap.
template <class T>
T times(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(std::common_type_t<T, std::uint32_t>{a} * b);
  else
    return with_one_nan(a * b);
}

template <class T>
void scale(const void* from, void* to, std::size_t count, const void* scalar) {
  assert(scalar != nullptr && (count == 0 || (from != nullptr && to != nullptr)));
  T by;
  std::memcpy(&by, scalar, sizeof by);
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, static_cast<const T*>(from) + i, sizeof value);
    value = times(value, by);
    std::memcpy(static_cast<T*>(to) + i, &value, sizeof value);
  }
}

}  // namespace

template <class T>
void integer_average(const CombineArgs& args) {
  using U = std::make_unsigned_t<T>;
  const Divisor<T> divided(args.divide_by);
  fold_plainly<U>(
      args, [](U a, U b) { return static_cast<U>(a + b); },
      [&](U sum) { return static_cast<U>(divided(static_cast<T>(sum))); });
}
template void integer_average<std::int8_t>(const CombineArgs&);
template void integer_average<std::uint8_t>(const CombineArgs&);
template void integer_average<std::int16_t>(const CombineArgs&);
template void integer_average<std::uint16_t>(const CombineArgs&);
template void integer_average<std::int32_t>(const CombineArgs&);
template void integer_average<std::uint32_t>(const CombineArgs&);
template void integer_average<std::int64_t>(const CombineArgs&);
template void integer_average<std::uint64_t>(const CombineArgs&);

void byte_product(const CombineArgs& args) {
  assert(args.divide_by == 1);
  fold_plainly<std::uint8_t>(args, times<std::uint8_t>,
                             [](std::uint8_t product) { return product; });
}

template <class T>
void complex_product(const CombineArgs& args) {
  assert(args.divide_by == 1);
  fold_plainly<Complex<T>>(args, times<Complex<T>>, [](Complex<T> product) { return product; });
}
template void complex_product<float>(const CombineArgs&);
template void complex_product<double>(const CombineArgs&);

ScaleFunction scale_function(DataType type) {
  switch (type) {
    case DataType::int8:
    case DataType::uint8: return scale<std::uint8_t>;
    case DataType::int16:
    case DataType::uint16: return scale<std::uint16_t>;
    case DataType::int32:
    case DataType::uint32: return scale<std::uint32_t>;
    case DataType::int64:
    case DataType::uint64: return scale<std::uint64_t>;
    case DataType::f32: return scale<float>;
    case DataType::f64: return scale<double>;
    case DataType::complex64: return scale<Complex<float>>;
    case DataType::complex128: return scale<Complex<double>>;
    default: return nullptr;
  }
}

}  // namespace tutti
