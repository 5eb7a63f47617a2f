#include "perf/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <vector>

namespace tutti::perf {
namespace {

constexpr std::size_t kCount = 1000;

/// Reduces in the type itself, as a kernel would, in the order of `ranks`.
template <typename T>
std::vector<std::byte> reduce(const Pattern& pattern, Op op, const std::vector<int>& ranks) {
  std::vector<T> result(kCount), next(kCount);
  pattern.write(reinterpret_cast<std::byte*>(result.data()), 0, kCount, ranks[0]);
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    pattern.write(reinterpret_cast<std::byte*>(next.data()), 0, kCount, ranks[r]);
    for (std::size_t i = 0; i < kCount; ++i) {
      if (op == Op::sum || op == Op::avg) result[i] = static_cast<T>(result[i] + next[i]);
      if (op == Op::prod) result[i] = static_cast<T>(result[i] * next[i]);
      if (op == Op::min) result[i] = std::min(result[i], next[i]);
      if (op == Op::max) result[i] = std::max(result[i], next[i]);
    }
  }
  if (op == Op::avg)
    for (T& x : result) x = static_cast<T>(x / static_cast<T>(ranks.size()));
  std::vector<std::byte> bytes(kCount * sizeof(T));
  std::memcpy(bytes.data(), result.data(), bytes.size());
  return bytes;
}

// Wrapping is undefined for signed integers, so products are computed unsigned; there the order
// of minima differs, so those stay signed.
std::vector<std::byte> reduce_as(DataType type, const Pattern& pattern, Op op,
                                 const std::vector<int>& ranks) {
  switch (type) {
    case DataType::f32: return reduce<float>(pattern, op, ranks);
    case DataType::f64: return reduce<double>(pattern, op, ranks);
    case DataType::int32:
      return op == Op::prod ? reduce<std::uint32_t>(pattern, op, ranks)
                            : reduce<std::int32_t>(pattern, op, ranks);
    default:
      return op == Op::prod ? reduce<std::uint64_t>(pattern, op, ranks)
                            : reduce<std::int64_t>(pattern, op, ranks);
  }
}

TEST(PerfPattern, AnyOrderOfReductionGivesTheExpectedBits) {
  for (const DataType type : {DataType::f32, DataType::f64, DataType::int32, DataType::int64})
    for (const Op op : {Op::sum, Op::prod, Op::min, Op::max, Op::avg})
      for (const int size : {1, 2, 3, 5, 8, 64}) {
        const Pattern pattern(type, op, size, 42, kCount);
        std::vector<int> ranks(static_cast<std::size_t>(size));
        std::iota(ranks.begin(), ranks.end(), 0);
        for (int turn = 0; turn < 3; ++turn) {
          const auto result = reduce_as(type, pattern, op, ranks);
          EXPECT_EQ(pattern.wrong_reduced(result.data(), 0, kCount), 0u)
              << to_string(type) << ' ' << to_string(op) << ' ' << size;
          std::rotate(ranks.begin(), ranks.begin() + size / 2, ranks.end());
          std::reverse(ranks.begin() + size / 3, ranks.end());
        }
      }
}

TEST(PerfPattern, PartialSumsOfBf16NeedNoMoreThanItsEightBits) {
  for (const int size : {2, 3, 8, 64}) {
    const Pattern pattern(DataType::bf16, Op::sum, size, 7, kCount);
    std::vector<std::uint16_t> bits(kCount);
    std::vector<float> sum(kCount);
    for (int rank = 0; rank < size; ++rank) {
      pattern.write(reinterpret_cast<std::byte*>(bits.data()), 0, kCount, rank);
      for (std::size_t i = 0; i < kCount; ++i) {
        sum[i] += std::bit_cast<float>(std::uint32_t{bits[i]} << 16);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(sum[i]) & 0xffff, 0u) << sum[i];
      }
    }
    for (std::size_t i = 0; i < kCount; ++i)
      bits[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(sum[i]) >> 16);
    EXPECT_EQ(pattern.wrong_reduced(reinterpret_cast<const std::byte*>(bits.data()), 0, kCount),
              0u);
  }
}

TEST(PerfPattern, AMissingOrDoubledContributionIsSeen) {
  for (const Op op : {Op::sum, Op::prod, Op::avg}) {
    const Pattern pattern(DataType::f32, op, 4, 1, kCount);
    for (const std::vector<int>& ranks : {std::vector{0, 1, 2}, {0, 1, 2, 2}, {0, 1, 2, 3, 3}}) {
      const auto result = reduce<float>(pattern, op, ranks);
      EXPECT_GT(pattern.wrong_reduced(result.data(), 0, kCount), kCount / 2) << to_string(op);
    }
  }
}

TEST(PerfPattern, EveryWrongElementIsCountedOnce) {
  const std::size_t count = 2 * Pattern::kPeriod + 3;
  const Pattern pattern(DataType::int32, Op::max, 2, 1, count);
  std::vector<std::int32_t> data(count);
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  pattern.write(bytes, 0, count, 1);
  EXPECT_EQ(pattern.wrong_copied(bytes, 0, count, 1), 0u);
  EXPECT_GT(pattern.wrong_copied(bytes, 0, count, 0), count / 2);
  for (const std::size_t i : {std::size_t{0}, Pattern::kPeriod, count - 1}) data[i] ^= 1;
  EXPECT_EQ(pattern.wrong_copied(bytes, 0, count, 1), 3u);
}

TEST(PerfPattern, ABlockIsWhereItBelongs) {
  const Pattern pattern(DataType::f64, Op::sum, 1, 1, 3 * kCount);
  std::vector<double> all(3 * kCount), block(kCount);
  pattern.write(reinterpret_cast<std::byte*>(all.data()), 0, all.size(), 0);
  pattern.write(reinterpret_cast<std::byte*>(block.data()), kCount, kCount, 0);
  EXPECT_TRUE(std::equal(block.begin(), block.end(), all.begin() + kCount));
  const auto* bytes = reinterpret_cast<const std::byte*>(block.data());
  EXPECT_EQ(pattern.wrong_reduced(bytes, kCount, kCount), 0u);
  EXPECT_GT(pattern.wrong_reduced(bytes, 0, kCount), kCount / 2);
}

TEST(PerfPattern, ResultsOfAnEarlierCheckAreWrong) {
  const Pattern before(DataType::f32, Op::sum, 2, 1, kCount),
      now(DataType::f32, Op::sum, 2, 2, kCount);
  const auto stale = reduce<float>(before, Op::sum, {0, 1});
  EXPECT_GT(now.wrong_reduced(stale.data(), 0, kCount), kCount / 2);
}

}  // namespace
}  // namespace tutti::perf
