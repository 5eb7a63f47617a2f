// Compares fixed-point sums with their definition and with sums of more digits.
#include "compute/fixed_point.h"

#include <cmath>
#include <numeric>

#include "fixture.h"

namespace tutti {
namespace {

// Writes the sum to two outputs, the second of which is also the last summand.
template <typename T>
std::vector<T> summed(const std::vector<std::vector<T>>& summands, std::uint32_t divide_by,
                      std::size_t offset, const CombineExtras* extras = nullptr) {
  std::vector<GuardedBuffer<T>> given;
  for (const auto& values : summands) given.emplace_back(values, offset);
  GuardedBuffer<T> result(std::vector<T>(summands[0].size()), offset);
  std::vector<const void*> in;
  for (auto& values : given) in.push_back(values.data());
  void* const out[] = {result.data(), given.back().data()};
  fixed_point_sum(data_type_of<T>())({.in = in.data(),
                                      .inputs = static_cast<int>(in.size()),
                                      .out = out,
                                      .outputs = 2,
                                      .count = summands[0].size(),
                                      .divide_by = divide_by,
                                      .fetch_outputs = 1,
                                      .extras = extras});
  EXPECT_TRUE(result.guards_are_untouched() && given.back().guards_are_untouched());
  const std::vector<T> found = result.values(), in_place = given.back().values();
  EXPECT_TRUE(found.empty() ||
              std::memcmp(found.data(), in_place.data(), found.size() * sizeof(T)) == 0);
  return found;
}

float by_definition(const std::vector<float>& summands, std::uint32_t divide_by) {
  int greatest = -126;
  for (const float x : summands)
    if (x != 0) greatest = std::max(greatest, std::ilogb(x));
  const int scale = 47 - greatest;
  std::int64_t sum = 0;
  for (const float x : summands) sum += std::llrint(std::ldexp(double{x}, scale));
  return static_cast<float>(std::ldexp(static_cast<double>(sum) / divide_by, -scale));
}

double by_definition(const std::vector<double>& summands, std::uint32_t divide_by) {
  int greatest = -1022;
  for (const double x : summands)
    if (x != 0) greatest = std::max(greatest, std::ilogb(x));
  const int scale = 47 - greatest;
  std::int64_t sum = 0, rest = 0;
  for (const double x : summands) {
    const double scaled = std::ldexp(x, scale);
    sum += std::llrint(scaled);
    rest += std::llrint(std::ldexp(scaled - std::nearbyint(scaled), 48));
  }
  const double all = static_cast<double>(sum) + std::ldexp(static_cast<double>(rest), -48);
  return std::ldexp(all / divide_by, -scale);
}

// Returns random summands whose exponents differ by at most `spread`.
template <typename T>
std::vector<std::vector<T>> random_summands(std::size_t ranks, std::size_t count, int spread,
                                            std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<T>> all(ranks);
  for (auto& values : all)
    for (std::size_t i = 0; i < count; ++i) {
      const double mantissa = static_cast<double>(random()) / 2147483648.0 - 1;
      const int exponent = static_cast<int>(random() % static_cast<std::uint32_t>(2 * spread + 1));
      values.push_back(static_cast<T>(std::ldexp(mantissa, exponent - spread)));
    }
  return all;
}

class FixedPointSums : public OnEveryTarget {};

template <typename T>
void check_definition() {
  for (const std::size_t ranks : {1u, 2u, 7u, 16u})
    for (const std::size_t count : {0u, 1u, 5u, 255u, 256u, 257u, 1000u})
      for (const std::uint32_t divide_by : {1u, 7u}) {
        const auto summands =
            random_summands<T>(ranks, count, 30, static_cast<std::uint32_t>(17 * ranks + count));
        const auto found = summed(summands, divide_by, count % 3);
        for (std::size_t i = 0; i < count; ++i) {
          std::vector<T> element;
          for (const auto& values : summands) element.push_back(values[i]);
          const T expected = by_definition(element, divide_by);
          ASSERT_EQ(std::memcmp(&found[i], &expected, sizeof(T)), 0)
              << found[i] << " in place of " << expected << ", element " << i;
        }
      }
}

TEST_P(FixedPointSums, AreWhatTheDefinitionSaysToTheBit) {
  check_definition<float>();
  check_definition<double>();
}

// `bits` is the number of bits of the type's significand, `digits` the number of bits that a sum
// keeps below its greatest summand.
template <typename T>
void check_error(int bits, int digits, int spread) {
  constexpr std::size_t kRanks = 16;
  const auto summands = random_summands<float>(kRanks, 2000, spread, 3);
  std::vector<std::vector<T>> given(kRanks);
  for (std::size_t rank = 0; rank < kRanks; ++rank)
    for (const float x : summands[rank]) given[rank].push_back(reference::nearest<T>(x));
  const std::vector<T> found = summed(given, 1, 0);
  for (std::size_t i = 0; i < found.size(); ++i) {
    double exact = 0, greatest = 0;
    for (const auto& values : given) {
      const double x = reference::to_float(values[i]);
      exact += x;  // 53 bits, far more than the sum keeps
      greatest = std::max(greatest, std::abs(x));
    }
    const double allowed = std::ldexp(std::abs(exact), -bits) * 1.001 +
                           std::ldexp(greatest, -digits) * kRanks + std::ldexp(1.0, -24);
    EXPECT_LE(std::abs(reference::to_float(found[i]) - exact), allowed) << i;
  }
}

TEST_P(FixedPointSums, OfNarrowFloatsAreRoundedNearlyOnce) {
  check_error<float16>(11, 17, 6);
  check_error<bfloat16>(8, 17, 12);
  check_error<float8_e4m3>(4, 17, 2);
  check_error<float8_e5m2>(3, 17, 4);
}

template <typename T>
void check_special_values() {
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const T max = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::denorm_min();
  const std::vector<std::vector<T>> cases = {
      // three summands, then their sum
      {1, inf, 2, inf},      {-inf, 3, -inf, -inf},  {inf, -inf, 0, nan},
      {nan, 1, 1, nan},      {nan, inf, 1, nan},     {max, max, 0, inf},
      {-max, -max, 0, -inf}, {max, max, -max, max},  {least, least, 0, 2 * least},
      {least, 0, -least, 0}, {0, 0, 0, 0},           {-T{0}, -T{0}, -T{0}, 0},
      {max, least, -max, 0}, {T(0.1), T(-0.1), 0, 0}};
  std::vector<std::vector<T>> summands(3);
  std::vector<T> expected;
  // Other elements are put between them, so that there are blocks with and without infinities.
  for (int copy = 0; copy < 40; ++copy)
    for (const auto& row : cases) {
      for (std::size_t rank = 0; rank < 3; ++rank) summands[rank].push_back(row[rank]);
      expected.push_back(row[3]);
      for (int plain = 0; plain < copy; ++plain) {
        for (auto& values : summands) values.push_back(T(1.5));
        expected.push_back(T(4.5));
      }
    }
  const auto found = summed(summands, 1, 1);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i]))
      EXPECT_TRUE(std::isnan(found[i])) << i;
    else
      EXPECT_EQ(found[i], expected[i]) << i;
    EXPECT_FALSE(expected[i] == 0 && std::signbit(found[i])) << i;
  }
}

TEST_P(FixedPointSums, OfInfinitiesNaNsZerosDenormalsAndTheGreatest) {
  check_special_values<float>();
  check_special_values<double>();
}

TEST_P(FixedPointSums, AComplexNumberIsTwo) {
  const std::complex<float> one{1, 1e30F}, other{1e-30F, -1e30F};
  EXPECT_EQ(summed<std::complex<float>>({{one}, {other}}, 1, 0)[0], std::complex<float>(1, 0));
  const std::complex<double> wide{1, 1e300}, also{1e-300, -1e300};
  EXPECT_EQ(summed<std::complex<double>>({{wide}, {also}}, 1, 0)[0], std::complex<double>(1, 0));
}

// Adds as many summands as are allowed, all of the greatest magnitude for their exponent.
TEST_P(FixedPointSums, NoSumOfAsManyAsAreAllowedOverflows) {
  const float most = std::nextafter(2.0F, 0.0F);
  const double sum = static_cast<double>(most) * kMostSummands;
  const std::vector<std::vector<float>> f32(kMostSummands, {most, -most});
  EXPECT_EQ(summed(f32, 1, 0)[0], static_cast<float>(sum));
  EXPECT_EQ(summed(f32, 1, 0)[1], static_cast<float>(-sum));
  const std::vector<std::vector<bfloat16>> narrow(kMostSummands,
                                                  {reference::nearest<bfloat16>(1.9921875F)});
  EXPECT_EQ(reference::to_float(summed(narrow, 1, 0)[0]), 1.9921875F * kMostSummands);
}

template <typename T>
void check_product(T a, T b, T scalar, T expected) {
  const CombineExtras extras{.premultiplied_inputs = 2, .premultiply = &scalar};
  const std::vector<std::vector<T>> summands{std::vector<T>(700, a), std::vector<T>(700, b)};
  for (const T& found : summed(summands, 1, 1, &extras))
    EXPECT_EQ(std::memcmp(&found, &expected, sizeof found), 0);
}

TEST_P(FixedPointSums, AProductIsRoundedToTheTypeAsInAMessage) {
  check_product<float>(1, 3, 0.1F, 1 + 3 * 0.1F);
  const auto narrow = [](float x) { return reference::nearest<bfloat16>(x); };
  // 1.0078125 * 1.0078125 is 2^-14 more than the nearest bf16.
  check_product(narrow(-1.015625F), narrow(1.0078125F), narrow(1.0078125F), narrow(0));
  check_product<std::complex<float>>({1, 1}, {0, 2}, {0, 1}, {-1, 1});
}

TEST(FixedPoint, IsForFloatsAlone) {
  EXPECT_EQ(fixed_point_sum(DataType::int32), nullptr);
  EXPECT_EQ(fixed_point_sum(DataType::boolean), nullptr);
}

INSTANTIATE_ON_EVERY_TARGET(FixedPointSums);

}  // namespace
}  // namespace tutti
