// The promises of docs/numerics.md, one by one, on chosen values.
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
  // Each operand fills a buffer that is long enough to meet every width of vector.
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
  // 1/49 * 49 is below one in f64, and so is 1/41 in f32.
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

TEST_P(Numerics, EveryBfloat16RoundsAsTheReferenceDoes) {
  std::vector<bfloat16> all(65536), halves(65536), others(65536);
  Values<bfloat16> values(7);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].bits = static_cast<std::uint16_t>(i);
    // Half a unit in the last place where there is one: a tie for each pattern.
    halves[i].bits = static_cast<std::uint16_t>((i & 0xFF80) > 0x0400 ? (i & 0xFF80) - 0x0400 : i);
    others[i] = values.next();
  }
  for (const auto& second : {all, halves, others})
    for (const Op op : {Op::sum, Op::prod, Op::min, Op::max})
      check<bfloat16>({.op = op, .count = all.size()}, {all, second});
  check<bfloat16>({.op = Op::avg, .inputs = 1, .count = all.size(), .divide_by = 3}, {all});
}

TEST_P(Numerics, IntegerSumsAndProductsWrap) {
  using Int = std::numeric_limits<std::int32_t>;
  using Long = std::numeric_limits<std::int64_t>;
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
  EXPECT_EQ(combine<std::int32_t>(Op::avg, {-3, -4}, 2), -3);
  EXPECT_EQ(combine<std::int32_t>(Op::avg, {3, 4}, 2), 3);
  EXPECT_EQ(combine<std::int32_t>(Op::avg, {Int::max(), 1}, 2), Int::min() / 2);
  EXPECT_EQ(combine<std::int32_t>(Op::avg, {Int::min(), 0}, 4294967295u), 0);
  EXPECT_EQ(combine<std::int64_t>(Op::avg, {-3, -4}, 2), -3);
  EXPECT_EQ(combine<std::int64_t>(Op::avg, {Long::min(), 0}, 4294967295u),
            Long::min() / 4294967295);
  EXPECT_EQ(combine<std::int64_t>(Op::avg, {Long::min(), 0}, 3), Long::min() / 3);
}

// Multiples of the divisor and their neighbours, up to the ends of the range: where a reciprocal
// that is off by one bit shows.
template <typename T>
std::vector<T> around_multiples(std::uint32_t divisor) {
  std::mt19937_64 random(divisor);
  std::vector<T> sums{std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
  for (int n = 0; n < 2000; ++n) {
    const auto any = static_cast<T>(random()) >> random() % (8 * sizeof(T));
    const auto multiple =
        any / static_cast<std::int64_t>(divisor) * static_cast<std::int64_t>(divisor);
    for (const int near : {-1, 0, 1}) sums.push_back(static_cast<T>(multiple + near));
  }
  return sums;
}

TEST_P(Numerics, IntegerAveragesAreExactForEveryKindOfDivisor) {
  for (const std::uint32_t divisor : {2u, 3u, 4u, 5u, 7u, 10u, 64u, 1000u, 65535u, 65536u, 65537u,
                                      0x7FFFFFFFu, 0x80000000u, 0x80000001u, 0xFFFFFFFFu}) {
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
