// Conversions and arithmetic of narrow floating-point types, against the host's side of CUDA's own
// headers and against values that were worked out by hand.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "tests/cuda/launch.h"
#include "tests/cuda/operations.h"

namespace tutti::stand_in::test {
namespace {

using Bits16 = std::uint16_t;

std::vector<float> floats() {
  using Limits = std::numeric_limits<float>;
  std::vector<float> values = {0.F,
                               -0.F,
                               0.5F,
                               1.5F,
                               2.5F,
                               -2.5F,
                               448.F,
                               464.F,
                               465.F,
                               57344.F,
                               61440.F,
                               65504.F,
                               65519.F,
                               65520.F,
                               -65520.F,
                               1e30F,
                               3.4e38F,
                               2147483648.F,
                               -2147483648.F,
                               2147483520.F,
                               4294967296.F,
                               9.3e18F,
                               -9.3e18F,
                               1.9e19F,
                               127.5F,
                               -128.5F,
                               Limits::infinity(),
                               -Limits::infinity(),
                               Limits::quiet_NaN(),
                               Limits::denorm_min(),
                               Limits::min(),
                               Limits::max()};
  std::mt19937 random(3);
  for (int each = 0; each < 4000; ++each)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  // The neighbours of all values of f16, and of the points between two, where rounding is decided.
  for (std::uint32_t bits = 0; bits < 0x7c00; bits += 3) {
    const float value = __half2float(__ushort_as_half(static_cast<Bits16>(bits)));
    const float next = __half2float(__ushort_as_half(static_cast<Bits16>(bits + 1)));
    const float middle = std::isinf(next) ? 65520.F : (value + next) / 2;
    for (const float each :
         {value, middle, std::nextafter(middle, 0.F), std::nextafter(middle, 1e9F)}) {
      values.push_back(each);
      values.push_back(-each);
    }
  }
  return values;
}

/// A float to an integer as PTX says: within the type's range, and 0 or its sign bit for NaN.
template <typename T>
T integer_of(double value, double whole, bool of_double) {
  if (std::isnan(value))
    return sizeof(T) < 8 && !of_double
               ? T(0)
               : static_cast<T>(std::make_unsigned_t<T>(1) << (sizeof(T) * 8 - 1));
  if (whole <= static_cast<double>(std::numeric_limits<T>::min()))
    return std::numeric_limits<T>::min();
  if (whole >= static_cast<double>(std::numeric_limits<T>::max()))
    return std::numeric_limits<T>::max();
  return static_cast<T>(whole);
}

TEST(Conversions, FromFloats) {
  const Gpu gpu;
  const std::vector<float> x = floats();
  const Array<float> from(x);
  const Array<Bits16> half(x.size()), brain(x.size());
  const Array<std::uint8_t> e4m3(x.size()), e5m2(x.size());
  const Array<std::int32_t> s32(x.size());
  const Array<std::uint32_t> u32(x.size());
  const Array<std::int64_t> s64(x.size());
  const Array<std::uint64_t> u64(x.size());
  const Array<std::int8_t> s8(x.size());
  const Array<float> nearest(x.size());
  gpu.launch("from_f32", {4, 64}, from.address(), static_cast<unsigned>(x.size()), half.address(),
             brain.address(), e4m3.address(), e5m2.address(), s32.address(), u32.address(),
             s64.address(), u64.address(), s8.address(), nearest.address());
  const auto halves = half.get(), brains = brain.get();
  const auto narrow = e4m3.get(), wide = e5m2.get();
  for (std::size_t each = 0; each < x.size(); ++each) {
    const float value = x[each];
    const auto exact = static_cast<double>(value);
    SCOPED_TRACE(testing::Message() << value << " at " << each);
    ASSERT_EQ(halves[each], __half_as_ushort(__float2half_rn(value)));
    ASSERT_EQ(brains[each], __bfloat16_as_ushort(__float2bfloat16_rn(value)));
    ASSERT_EQ(narrow[each], __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3));
    ASSERT_EQ(wide[each], __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2));
    ASSERT_EQ(s32.get(each), integer_of<std::int32_t>(exact, std::trunc(exact), false));
    ASSERT_EQ(u32.get(each), integer_of<std::uint32_t>(exact, std::nearbyint(exact), false));
    ASSERT_EQ(s64.get(each), integer_of<std::int64_t>(exact, std::floor(exact), false));
    ASSERT_EQ(u64.get(each), integer_of<std::uint64_t>(exact, std::ceil(exact), false));
    if (std::isnan(value)) continue;
    ASSERT_EQ(s8.get(each),
              static_cast<std::int8_t>(std::nearbyint(std::fmin(std::fmax(value, -128.F), 127.F))));
    ASSERT_EQ(nearest.get(each), std::nearbyint(value));
  }
}

TEST(Conversions, ToFloatsFromAllBits) {
  const Gpu gpu;
  std::vector<Bits16> x(65536);
  for (std::size_t each = 0; each < x.size(); ++each) x[each] = static_cast<Bits16>(each);
  const Array<Bits16> from(x);
  const Array<float> half(x.size()), brain(x.size()), e4m3(x.size()), e5m2(x.size());
  const Array<std::int32_t> whole(x.size());
  gpu.launch("to_f32", {4, 64}, from.address(), static_cast<unsigned>(x.size()), half.address(),
             brain.address(), e4m3.address(), e5m2.address(), whole.address());
  const auto same = [](float found, float expected) {
    return std::isnan(expected)
               ? std::isnan(found)
               : std::bit_cast<std::uint32_t>(found) == std::bit_cast<std::uint32_t>(expected);
  };
  for (std::size_t each = 0; each < x.size(); ++each) {
    const float value = __half2float(__ushort_as_half(x[each]));
    SCOPED_TRACE(each);
    ASSERT_TRUE(same(half.get(each), value));
    ASSERT_TRUE(same(brain.get(each), __bfloat162float(__ushort_as_bfloat16(x[each]))));
    const auto byte = static_cast<__nv_fp8_storage_t>(x[each]);
    ASSERT_TRUE(same(e4m3.get(each), __half2float(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3))));
    ASSERT_TRUE(same(e5m2.get(each), __half2float(__nv_cvt_fp8_to_halfraw(byte, __NV_E5M2))));
    ASSERT_EQ(whole.get(each), integer_of<std::int32_t>(value, std::trunc(value), false));
  }
}

TEST(Conversions, FromIntegers) {
  const Gpu gpu;
  std::vector<std::int64_t> x = {
      0,     1,     -1,   16777217, -16777219, (1LL << 53) + 1,   INT64_MAX,         INT64_MIN,
      65519, 65520, 2049, 2051,     -257,      (257LL << 40) + 1, (257LL << 40) - 1, 0x80808080LL};
  std::mt19937_64 random(5);
  for (int each = 0; each < 3000; ++each)
    x.push_back(static_cast<std::int64_t>(random()) >> each % 60);
  const Array<std::int64_t> from(x), extended(x.size());
  const Array<float> f32(x.size()), of_unsigned(x.size()), toward_zero(x.size());
  const Array<double> f64(x.size());
  const Array<Bits16> half(x.size()), brain(x.size()), u16(x.size());
  const Array<std::int8_t> s8(x.size());
  gpu.launch("from_integers", {4, 64}, from.address(), static_cast<unsigned>(x.size()),
             f32.address(), f64.address(), half.address(), brain.address(), of_unsigned.address(),
             s8.address(), u16.address(), extended.address(), toward_zero.address());
  for (std::size_t each = 0; each < x.size(); ++each) {
    const std::int64_t value = x[each];
    SCOPED_TRACE(value);
    ASSERT_EQ(f32.get(each), static_cast<float>(value));
    ASSERT_EQ(f64.get(each), static_cast<double>(value));
    ASSERT_EQ(half.get(each), __half_as_ushort(__ll2half_rn(value)));
    ASSERT_EQ(brain.get(each), __bfloat16_as_ushort(__ll2bfloat16_rn(value)));
    ASSERT_EQ(of_unsigned.get(each), static_cast<float>(static_cast<std::uint64_t>(value)));
    ASSERT_EQ(s8.get(each), static_cast<std::int8_t>(value));
    ASSERT_EQ(u16.get(each), static_cast<Bits16>(value));
    ASSERT_EQ(extended.get(each), std::int64_t{static_cast<std::int8_t>(value)} +
                                      static_cast<std::int16_t>(value >> 8) +
                                      static_cast<std::int32_t>(value));
    const float cut = toward_zero.get(each);
    ASSERT_LE(std::fabs(static_cast<long double>(cut)), std::fabs(static_cast<long double>(value)));
    ASSERT_TRUE(cut == static_cast<float>(value) ||
                std::nextafter(cut, value < 0 ? -1e30F : 1e30F) == static_cast<float>(value));
  }
}

TEST(Conversions, FromDoubles) {
  const Gpu gpu;
  std::vector<double> x = {0,         -0.0,  0.5,         2.5,          1 + 1e-9,
                           -1 - 1e-9, 1e300, -1e300,      2147483647.5, -2147483648.5,
                           1.8e19,    1e-46, std::nan("")};
  std::mt19937_64 random(9);
  for (int each = 0; each < 2000; ++each)
    x.push_back(std::ldexp(static_cast<double>(random()) - 9e18, -each % 64));
  const Array<double> from(x);
  const Array<float> f32(x.size()), down(x.size());
  const Array<std::int32_t> s32(x.size());
  const Array<std::uint64_t> u64(x.size());
  const Array<std::int64_t> s64(x.size());
  gpu.launch("from_f64", {4, 64}, from.address(), static_cast<unsigned>(x.size()), f32.address(),
             down.address(), s32.address(), u64.address(), s64.address());
  for (std::size_t each = 0; each < x.size(); ++each) {
    const double value = x[each];
    SCOPED_TRACE(value);
    ASSERT_EQ(s32.get(each), integer_of<std::int32_t>(value, std::nearbyint(value), true));
    ASSERT_EQ(u64.get(each), integer_of<std::uint64_t>(value, std::trunc(value), true));
    ASSERT_EQ(s64.get(each), integer_of<std::int64_t>(value, std::trunc(value), true));
    if (std::isnan(value)) continue;
    ASSERT_EQ(f32.get(each), static_cast<float>(value));
    const float below = static_cast<float>(value) <= value
                            ? static_cast<float>(value)
                            : std::nextafter(static_cast<float>(value), -INFINITY);
    ASSERT_EQ(down.get(each), below);
  }
}

/// Numbers of 16 bits: all pairs of some that matter, and random ones.
template <typename Function>
void for_operands(Function function) {
  const std::vector<Bits16> special = {0,      0x8000, 1,      0x8001, 0x3ff,  0x400,  0x3c00,
                                       0xbc00, 0x3f80, 0xbf80, 0x3c01, 0x7bff, 0x7c00, 0xfc00,
                                       0x7e00, 0x7f80, 0xff80, 0x7f7f, 0x7fff, 0x3555, 0x80};
  for (const Bits16 x : special)
    for (const Bits16 y : special) function(x, y, special[(x + y) % special.size()]);
  std::mt19937 random(11);
  for (int each = 0; each < 6000; ++each)
    function(static_cast<Bits16>(random()), static_cast<Bits16>(random()),
             static_cast<Bits16>(random()));
}

struct Half {
  static float value(Bits16 bits) { return __half2float(__ushort_as_half(bits)); }
  static Bits16 bits(float value) { return __half_as_ushort(__float2half_rn(value)); }
  static Bits16 bits(double value) { return __half_as_ushort(__double2half(value)); }
};
struct Brain {
  static float value(Bits16 bits) { return __bfloat162float(__ushort_as_bfloat16(bits)); }
  static Bits16 bits(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
  static Bits16 bits(double value) { return __bfloat16_as_ushort(__double2bfloat16(value)); }
};

float lesser(float x, float y) {
  if (std::isnan(x)) return y;
  if (std::isnan(y)) return x;
  return x < y || (x == y && std::signbit(x)) ? x : y;
}

/// The sum of a product and a number, for rounding to 16 bits. Of one that is far smaller than the
/// other only the sign matters, so that another of its sign is taken with which the sum is exact.
double exact_sum(double x, double y) {
  constexpr double kFar = 0x1p-40;
  if (std::isfinite(x) && std::isfinite(y) && x != 0 && y != 0) {
    if (std::fabs(y) < kFar * std::fabs(x)) y = std::copysign(kFar * x, y);
    if (std::fabs(x) < kFar * std::fabs(y)) x = std::copysign(kFar * y, x);
  }
  return x + y;
}

template <typename Type>
Bits16 expected_of(Operation operation, Bits16 a, Bits16 b, Bits16 c) {
  const float x = Type::value(a), y = Type::value(b), z = Type::value(c);
  switch (operation) {
    case Operation::add: return Type::bits(x + y);
    case Operation::subtract: return Type::bits(x - y);
    case Operation::multiply: return Type::bits(x * y);
    case Operation::fused:
      return Type::bits(
          exact_sum(static_cast<double>(x) * static_cast<double>(y), static_cast<double>(z)));
    case Operation::least: return Type::bits(lesser(x, y));
    case Operation::greatest: return Type::bits(-lesser(-x, -y));
    case Operation::least_or_nan:
      return Type::bits(std::isnan(x) || std::isnan(y) ? NAN : lesser(x, y));
    case Operation::greatest_or_nan:
      return Type::bits(std::isnan(x) || std::isnan(y) ? NAN : -lesser(-x, -y));
    case Operation::negate: return a ^ 0x8000;
    case Operation::magnitude: return a & 0x7fff;
    default:
      return Type::bits(static_cast<float>((x < y) | (x <= y) << 1 | (x == y) << 2 | (x > y) << 5));
  }
}

template <typename Type>
void check_half(const char* kernel, std::initializer_list<Operation> operations) {
  const Gpu gpu;
  std::vector<Bits16> a, b, c;
  for_operands([&](Bits16 x, Bits16 y, Bits16 z) {
    a.push_back(x);
    b.push_back(y);
    c.push_back(z);
  });
  const bool pairs = std::string(kernel).back() == '2';
  if (a.size() % 2 != 0) {
    a.pop_back();
  }
  b.resize(a.size());
  c.resize(a.size());
  const Array<Bits16> x(a), y(b), z(c);
  for (const Operation operation : operations) {
    const Array<Bits16> result(a.size());
    gpu.launch(kernel, {2, 64}, operation, result.address(), x.address(), y.address(), z.address(),
               static_cast<unsigned>(a.size() / (pairs ? 2 : 1)));
    const auto found = result.get();
    for (std::size_t each = 0; each < a.size(); ++each) {
      Bits16 expected = expected_of<Type>(operation, a[each], b[each], c[each]);
      if (std::isnan(Type::value(expected)) && std::isnan(Type::value(found[each]))) continue;
      ASSERT_EQ(found[each], expected) << kernel << " operation " << static_cast<int>(operation)
                                       << " of " << a[each] << ", " << b[each] << ", " << c[each];
    }
  }
}

using O = Operation;

TEST(Conversions, ArithmeticOfHalves) {
  const auto all = {O::add,    O::subtract,  O::multiply,     O::fused,
                    O::least,  O::greatest,  O::least_or_nan, O::greatest_or_nan,
                    O::negate, O::magnitude, O::compare};
  check_half<Half>("apply_f16", all);
  check_half<Brain>("apply_bf16", all);
}

TEST(Conversions, ArithmeticOfPairs) {
  const auto all = {O::add, O::subtract, O::multiply, O::fused, O::least, O::greatest, O::negate};
  check_half<Half>("apply_f16x2", all);
  check_half<Brain>("apply_bf16x2", all);
}

// x * y lies in the middle between two numbers, and z, which is far too small for a double to hold
// the sum, decides to which of them it is rounded.
TEST(Conversions, FusedOperationRoundsOnce) {
  const Gpu gpu;
  const std::vector<Bits16> x(2, 0x3f81), y(2, 0x3fc0), z = {0x0d80, 0x8d80};
  const Array<Bits16> a(x), b(y), c(z), result(2);
  gpu.launch("apply_bf16", {1, 32}, Operation::fused, result.address(), a.address(), b.address(),
             c.address(), 2U);
  EXPECT_EQ(result.get(), (std::vector<Bits16>{0x3fc2, 0x3fc1}));
}

}  // namespace
}  // namespace tutti::stand_in::test
