// Checks the statements of docs/numerics.md, one by one, on chosen values.
#include <bit>
#include <cmath>
#include <limits>

#include "fixture.h"

namespace tutti {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class Numerics : public OnEveryTarget {
 protected:
  // Each operand fills a buffer that is long enough for every width of vector to be used.
  template <typename T>
  T combine(Op op, const std::vector<T>& operands, std::uint32_t divide_by = 1) {
    constexpr std::size_t kCount = 16 * 64 + 63;
    std::vector<std::vector<T>> inputs;
    std::vector<const void*> in;
    for (const T operand : operands) inputs.emplace_back(kCount, operand);
    for (const auto& input : inputs) in.push_back(input.data());
    std::vector<T> output(kCount);
    void* out = output.data();
    combine_function(type_of<T>(), op)({.in = in.data(),
                                        .inputs = static_cast<int>(in.size()),
                                        .out = &out,
                                        .outputs = 1,
                                        .count = kCount,
                                        .divide_by = divide_by});
    EXPECT_TRUE(same_bits(output, std::vector<T>(kCount, output[0])));
    return output[0];
  }
  bfloat16 bf16(float value) { return reference::nearest<bfloat16>(value); }
  std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }
};

TEST_P(Numerics, MinAndMaxOrderNegativeZeroBelowPositiveZeroWhateverTheOrder) {
  EXPECT_EQ(bits(combine<float>(Op::min, {0.0f, -0.0f})), bits(-0.0f));
  EXPECT_EQ(bits(combine<float>(Op::min, {-0.0f, 0.0f})), bits(-0.0f));
  EXPECT_EQ(bits(combine<float>(Op::max, {0.0f, -0.0f})), bits(0.0f));
  EXPECT_EQ(bits(combine<float>(Op::max, {-0.0f, 0.0f})), bits(0.0f));
  EXPECT_EQ(bits(combine<float>(Op::max, {-0.0f, -0.0f})), bits(-0.0f));
  EXPECT_FALSE(std::signbit(combine<double>(Op::max, {-0.0, 0.0, -0.0})));
  EXPECT_TRUE(std::signbit(combine<double>(Op::min, {0.0, -0.0, 0.0})));
}

TEST_P(Numerics, OneNaNMakesEveryReductionTheSamePositiveQuietNaN) {
  const float payload = std::bit_cast<float>(0xFFC01234u);
  const float signalling = std::bit_cast<float>(0x7F800001u);
  for (const Op op : {Op::sum, Op::prod, Op::min, Op::max, Op::avg})
    for (const float nan : {kNaN, payload, signalling})
      for (const float other : {1.0f, -kInfinity, kInfinity, nan}) {
        EXPECT_EQ(bits(combine<float>(op, {nan, other})), 0x7FC00000u);
        EXPECT_EQ(bits(combine<float>(op, {other, nan})), 0x7FC00000u);
        EXPECT_EQ(bits(combine<float>(op, {other, 2.0f, nan, 3.0f})), 0x7FC00000u);
      }
  EXPECT_EQ(bits(combine<float>(Op::sum, {kInfinity, -kInfinity})), 0x7FC00000u);
  EXPECT_EQ(bits(combine<float>(Op::prod, {0.0f, kInfinity})), 0x7FC00000u);
}

TEST_P(Numerics, OneInputKeepsItsBitsEvenOfASignallingNaN) {
  for (const Op op : {Op::sum, Op::prod, Op::min, Op::max, Op::avg}) {
    const auto copied = combine<float>(op, {std::bit_cast<float>(0xFF800001u)});
    EXPECT_EQ(bits(copied), 0xFF800001u);
    EXPECT_EQ(combine<bfloat16>(op, {bfloat16{0xFF81}}).bits, 0xFF81);
  }
}

TEST_P(Numerics, OperandsAreFoldedFromTheLeft) {
  EXPECT_EQ(combine<float>(Op::sum, {1e8f, -1e8f, 1.0f}), 1.0f);
  EXPECT_EQ(combine<float>(Op::sum, {1e8f, 1.0f, -1e8f}), 0.0f);
  EXPECT_EQ(combine<double>(Op::prod, {1e300, 1e300, 1e-300}),
            std::numeric_limits<double>::infinity());
  EXPECT_EQ(combine<double>(Op::prod, {1e300, 1e-300, 1e300}), 1e300);
}

TEST_P(Numerics, DenormalsAreKept) {
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(combine<float>(Op::sum, {least, least}), 2 * least);
  EXPECT_EQ(combine<float>(Op::avg, {least, least}, 2), least);
  EXPECT_EQ(combine<bfloat16>(Op::sum, {bfloat16{1}, bfloat16{1}}).bits, 2);
}

TEST_P(Numerics, AverageDividesAndDoesNotMultiplyByAReciprocal) {
  EXPECT_EQ(combine<float>(Op::avg, {3.0f, 6.0f}, 3), 3.0f);
  // 1/49 * 49 is less than one in f64, and so is 1/41 * 41 in f32.
  EXPECT_EQ(combine<double>(Op::avg, {48.0, 1.0}, 49), 1.0);
  EXPECT_EQ(combine<float>(Op::avg, {40.0f, 1.0f}, 41), 1.0f);
  EXPECT_EQ(combine<float>(Op::avg, {7.0f}, 2), 3.5f);
}

TEST_P(Numerics, Bfloat16IsAccumulatedInF32AndRoundedOnceToNearestEven) {
  // 256 + 1 lies halfway between 256 and 258: rounding after each addition would stay at 256.
  EXPECT_EQ(combine<bfloat16>(Op::sum, {bf16(256), bf16(1), bf16(1)}).bits, bf16(258).bits);
  EXPECT_EQ(combine<bfloat16>(Op::sum, {bf16(256), bf16(1)}).bits, bf16(256).bits);
  EXPECT_EQ(combine<bfloat16>(Op::sum, {bf16(258), bf16(1)}).bits, bf16(260).bits);
  EXPECT_EQ(combine<bfloat16>(Op::sum, {bf16(-258), bf16(-1)}).bits, bf16(-260).bits);
  EXPECT_EQ(combine<bfloat16>(Op::avg, {bf16(256), bf16(1), bf16(1)}, 2).bits, bf16(129).bits);
  EXPECT_EQ(combine<bfloat16>(Op::sum, {bfloat16{0x7F7F}, bfloat16{0x7F7F}}).bits, 0x7F80);
  EXPECT_EQ(combine<bfloat16>(Op::sum, {bfloat16{0x7F7F}, bfloat16{0x7B00}}).bits, 0x7F80);
  EXPECT_EQ(combine<bfloat16>(Op::sum, {bfloat16{0x7F7F}, bfloat16{0x7A00}}).bits, 0x7F7F);
  EXPECT_EQ(combine<bfloat16>(Op::sum, {bfloat16{0x7F80}, bfloat16{0xFF80}}).bits, 0x7FC0);
  EXPECT_EQ(combine<bfloat16>(Op::min, {bfloat16{0xFF81}, bf16(1)}).bits, 0x7FC0);
}

TEST_P(Numerics, TooGreatIsInfinityOrNaNAsTheFormatHasIt) {
  const auto f16 = [&](std::vector<float16> operands) { return combine(Op::sum, operands).bits; };
  EXPECT_EQ(f16({{0x7BFF}, {0x4B80}}), 0x7BFF);  // 65504 + 15
  EXPECT_EQ(f16({{0x7BFF}, {0x4C00}}), 0x7C00);  // 65504 + 16: halfway to 65536
  EXPECT_EQ(f16({{0xFBFF}, {0xFBFF}}), 0xFC00);
  EXPECT_EQ(f16({{0x7C00}, {0xFC00}}), 0x7E00);
  const auto e4m3 = [&](std::vector<float8_e4m3> operands) {
    return combine(Op::sum, operands).bits;
  };
  EXPECT_EQ(e4m3({{0x7E}, {0x58}}), 0x7E);  // 448 + 16: halfway, rounded to even
  EXPECT_EQ(e4m3({{0x7E}, {0x59}}), 0x7F);  // 448 + 18
  EXPECT_EQ(e4m3({{0xFE}, {0xFE}}), 0xFF);
  EXPECT_EQ(e4m3({{0xFF}, {0x00}}), 0x7F);
  const auto e5m2 = [&](std::vector<float8_e5m2> operands) {
    return combine(Op::sum, operands).bits;
  };
  EXPECT_EQ(e5m2({{0x7B}, {0x6B}}), 0x7B);  // 57344 + 3584
  EXPECT_EQ(e5m2({{0x7B}, {0x6C}}), 0x7C);  // 57344 + 4096: halfway
  EXPECT_EQ(e5m2({{0xFC}, {0x7C}}), 0x7E);
}

// Returns pairs of bit patterns: for 8-bit types every pattern with every other, for 16-bit types
// every pattern with itself, its neighbours and some others.
template <typename T>
std::pair<std::vector<T>, std::vector<T>> pairs_of_patterns() {
  std::pair<std::vector<T>, std::vector<T>> pairs;
  Values<T> values(7);
  for (unsigned a = 0; a < 65536; ++a)
    if constexpr (sizeof(T) == 1) {
      pairs.first.push_back({static_cast<std::uint8_t>(a >> 8)});
      pairs.second.push_back({static_cast<std::uint8_t>(a)});
    } else {
      const auto pattern = static_cast<std::uint16_t>(a);
      for (const T b : {T{pattern}, T{static_cast<std::uint16_t>(a - 0x0400)}, values.next()}) {
        pairs.first.push_back({pattern});
        pairs.second.push_back(b);
      }
    }
  return pairs;
}
template <typename T>
void check_every_pattern() {
  const auto [first, second] = pairs_of_patterns<T>();
  for (const Op op : {Op::sum, Op::prod, Op::min, Op::max})
    check<T>({.op = op, .count = first.size()}, {first, second});
  check<T>({.op = Op::avg, .inputs = 1, .count = first.size(), .divide_by = 3}, {second});
}
TEST_P(Numerics, EveryPatternOf16And8BitsRoundsAsTheReferenceDoes) {
  check_every_pattern<float16>();
  check_every_pattern<bfloat16>();
  check_every_pattern<float8_e4m3>();
  check_every_pattern<float8_e5m2>();
}

// Returns f32 values equal to each number of T, halfway between two of them, next to these, and
// beyond the greatest.
template <typename T>
std::vector<float> around_every_number() {
  std::vector<float> all{kInfinity, -kInfinity, kNaN,   1e30f,  4e32f,
                         -4e32f,    -1e38f,     1e-40f, -1e-45f};
  for (std::uint32_t bits = 0; bits < reference::kFormat<T>.sign; ++bits) {
    const float number = reference::to_float(T{static_cast<decltype(T::bits)>(bits)});
    const float next = reference::to_float(T{static_cast<decltype(T::bits)>(bits + 1)});
    if (!std::isfinite(number)) continue;
    const float half = std::isfinite(next) ? number / 2 + next / 2 : number * 1.0625f;
    for (const float middle : {number, half})
      for (const float near :
           {middle, std::nextafter(middle, kInfinity), std::nextafter(middle, -kInfinity)}) {
        all.push_back(near);
        all.push_back(-near);
      }
  }
  return all;
}
template <typename T>
void check_rounding() {
  const std::vector<float> wide = around_every_number<T>();
  std::vector<T> narrow(wide.size());
  const void* in = wide.data();
  void* out = narrow.data();
  const CombineExtras extras{.f32_inputs = 1};
  combine_function(type_of<T>(), Op::sum, DataType::f32)(
      {.in = &in, .inputs = 1, .out = &out, .outputs = 1, .count = wide.size(), .extras = &extras});
  for (std::size_t i = 0; i < wide.size(); ++i)
    ASSERT_EQ(narrow[i].bits, reference::nearest<T>(wide[i]).bits) << wide[i];
}
TEST_P(Numerics, WhatWasAccumulatedInF32IsRoundedToTheNearestWithTiesToEven) {
  check_rounding<float16>();
  check_rounding<bfloat16>();
  check_rounding<float8_e4m3>();
  check_rounding<float8_e5m2>();
}

TEST_P(Numerics, APremultipliedOperandOf16BitsIsRoundedBeforeItIsAddedUnlessMessagesAreWide) {
  const float16 third = reference::nearest<float16>(1 / 3.0f);
  const std::vector<float16> input(40, third), message(40, reference::nearest<float16>(1));
  std::vector<float16> output(40);
  const void* in[] = {input.data(), message.data()};
  void* out = output.data();
  CombineExtras extras{.premultiplied_inputs = 1, .premultiply = &third};
  combine_function(DataType::f16, Op::premul_sum)(
      {.in = in, .inputs = 2, .out = &out, .outputs = 1, .count = 40, .extras = &extras});
  const float product = reference::to_float(third) * reference::to_float(third);
  const float rounded = reference::to_float(reference::nearest<float16>(product));
  EXPECT_EQ(output[39].bits, reference::nearest<float16>(rounded + 1).bits);

  std::vector<float> sums(40);
  out = sums.data();
  extras.f32_outputs = 1;
  combine_function(DataType::f16, Op::premul_sum, DataType::f32)(
      {.in = in, .inputs = 2, .out = &out, .outputs = 1, .count = 40, .extras = &extras});
  EXPECT_EQ(sums[39], product + 1);
  EXPECT_NE(sums[39], rounded + 1);
}

TEST_P(Numerics, AComplexProductIsThatOfTheDefinition) {
  using Complex = std::complex<float>;
  EXPECT_EQ(combine<Complex>(Op::prod, {{1, 2}, {3, 4}}), Complex(-5, 10));
  EXPECT_EQ(combine<Complex>(Op::avg, {{1, 2}, {3, 4}}, 2), Complex(2, 3));
  // C's Annex G would give an infinity here.
  const Complex product = combine<Complex>(Op::prod, {{kInfinity, 0}, {0, kInfinity}});
  EXPECT_EQ(bits(product.real()), 0x7FC00000u);
  EXPECT_EQ(bits(combine<Complex>(Op::sum, {{-kNaN, 1}, {1, 1}}).real()), 0x7FC00000u);
}

TEST_P(Numerics, TruthValuesComeOutAs0Or1WhateverBytesWentIn) {
  const auto result = [&](Op op, std::uint8_t a, std::uint8_t b) {
    return combine<Truth>(op, {{a}, {b}}).byte;
  };
  for (const Op op : {Op::sum, Op::max, Op::bit_or, Op::logical_or}) {
    EXPECT_EQ(result(op, 2, 1), 1);
    EXPECT_EQ(result(op, 0, 0x80), 1);
    EXPECT_EQ(result(op, 0, 0), 0);
  }
  for (const Op op : {Op::prod, Op::min, Op::bit_and, Op::logical_and}) {
    EXPECT_EQ(result(op, 2, 1), 1);
    EXPECT_EQ(result(op, 0, 0x80), 0);
  }
  EXPECT_EQ(result(Op::bit_xor, 2, 1), 0);
  EXPECT_EQ(result(Op::bit_xor, 0, 4), 1);
}

TEST_P(Numerics, LogicalResultsOfIntegersAre0Or1AndBitwiseOnesKeepTheBits) {
  EXPECT_EQ(combine<std::int64_t>(Op::logical_and, {-6, 1LL << 40}), 1);
  EXPECT_EQ(combine<std::int16_t>(Op::logical_or, {0, 256}), 1);
  EXPECT_EQ(combine<std::int16_t>(Op::logical_and, {0, 256}), 0);
  EXPECT_EQ(combine<std::uint32_t>(Op::bit_and, {0xF0F0u, 0xFF00u, 0x7000u}), 0x7000u);
  EXPECT_EQ(combine<std::uint64_t>(Op::bit_or, {1ULL << 63, 5}), (1ULL << 63) + 5);
  EXPECT_EQ(combine<std::int8_t>(Op::bit_xor, {-1, 5}), -6);
}

TEST_P(Numerics, IntegerSumsAndProductsWrap) {
  using Int = std::numeric_limits<std::int32_t>;
  using Long = std::numeric_limits<std::int64_t>;
  EXPECT_EQ(combine<std::int8_t>(Op::sum, {127, 1}), -128);
  EXPECT_EQ(combine<std::uint8_t>(Op::prod, {16, 17}), 16);
  EXPECT_EQ(combine<std::uint16_t>(Op::prod, {65535, 65535}), 1);
  EXPECT_EQ(combine<std::int32_t>(Op::sum, {Int::max(), 1}), Int::min());
  EXPECT_EQ(combine<std::int32_t>(Op::prod, {1 << 16, 1 << 16}), 0);
  EXPECT_EQ(combine<std::int32_t>(Op::prod, {Int::min(), -1}), Int::min());
  EXPECT_EQ(combine<std::int64_t>(Op::sum, {Long::min(), -1}), Long::max());
  EXPECT_EQ(combine<std::int64_t>(Op::prod, {0x100000001, 0x100000001}), 0x200000001);
  EXPECT_EQ(combine<std::int64_t>(Op::prod, {Long::max(), 2}), -2);
}

TEST_P(Numerics, IntegerAveragesDivideTheWrappedSumTowardsZero) {
  using Int = std::numeric_limits<std::int32_t>;
  using Long = std::numeric_limits<std::int64_t>;
  EXPECT_EQ(combine<std::int8_t>(Op::avg, {-128, 1}, 2), -63);
  EXPECT_EQ(combine<std::uint32_t>(Op::avg, {0xFFFFFFFFu, 0}, 2), 0x7FFFFFFFu);
  EXPECT_EQ(combine<std::uint64_t>(Op::avg, {~0ULL, 0}, 2), ~0ULL >> 1);
  EXPECT_EQ(combine<std::int32_t>(Op::avg, {-3, -4}, 2), -3);
  EXPECT_EQ(combine<std::int32_t>(Op::avg, {3, 4}, 2), 3);
  EXPECT_EQ(combine<std::int32_t>(Op::avg, {Int::max(), 1}, 2), Int::min() / 2);
  EXPECT_EQ(combine<std::int32_t>(Op::avg, {Int::min(), 0}, 4294967295u), 0);
  EXPECT_EQ(combine<std::int64_t>(Op::avg, {-3, -4}, 2), -3);
  EXPECT_EQ(combine<std::int64_t>(Op::avg, {Long::min(), 0}, 4294967295u),
            Long::min() / 4294967295);
  EXPECT_EQ(combine<std::int64_t>(Op::avg, {Long::min(), 0}, 3), Long::min() / 3);
}

// Returns multiples of the divisor and their neighbours, up to the ends of the range. These show
// whether a reciprocal is off by one bit.
template <typename T>
std::vector<T> around_multiples(std::uint32_t divisor) {
  std::mt19937_64 random(divisor);
  std::vector<T> sums{std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
  for (int n = 0; n < 2000; ++n) {
    const auto any = static_cast<T>(random()) >> random() % (8 * sizeof(T));
    using Long = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    const auto multiple = any / static_cast<Long>(divisor) * static_cast<Long>(divisor);
    for (const int near : {-1, 0, 1})
      sums.push_back(static_cast<T>(multiple + static_cast<Long>(near)));
  }
  return sums;
}

TEST_P(Numerics, IntegerAveragesAreExactForEveryKindOfDivisor) {
  for (const std::uint32_t divisor : {2u, 3u, 4u, 5u, 7u, 10u, 64u, 1000u, 65535u, 65536u, 65537u,
                                      0x7FFFFFFFu, 0x80000000u, 0x80000001u, 0xFFFFFFFFu}) {
    const auto unsigned_longs = around_multiples<std::uint64_t>(divisor);
    check<std::uint64_t>(
        {.op = Op::avg, .inputs = 1, .count = unsigned_longs.size(), .divide_by = divisor},
        {unsigned_longs});
    const auto unsigned_ints = around_multiples<std::uint32_t>(divisor);
    check<std::uint32_t>(
        {.op = Op::avg, .inputs = 1, .count = unsigned_ints.size(), .divide_by = divisor},
        {unsigned_ints});
    const auto ints = around_multiples<std::int32_t>(divisor);
    check<std::int32_t>({.op = Op::avg, .inputs = 1, .count = ints.size(), .divide_by = divisor},
                        {ints});
    const auto longs = around_multiples<std::int64_t>(divisor);
    check<std::int64_t>({.op = Op::avg, .inputs = 1, .count = longs.size(), .divide_by = divisor},
                        {longs});
  }
}

INSTANTIATE_ON_EVERY_TARGET(Numerics);

}  // namespace
}  // namespace tutti
