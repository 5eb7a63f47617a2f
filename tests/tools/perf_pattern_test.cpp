#include "perf/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "compute/combine.h"

namespace tutti::perf {
namespace {

constexpr std::size_t kCount = 1000;

const std::vector<DataType> kTypes{DataType::int8,   DataType::uint8,  DataType::int32,
                                   DataType::uint32, DataType::int64,  DataType::uint64,
                                   DataType::f16,    DataType::f32,    DataType::f64,
                                   DataType::bf16,   DataType::f8e4m3, DataType::f8e5m2};
const std::vector<Op> kFolds{Op::sum, Op::prod, Op::min, Op::max, Op::avg, Op::premul_sum};

/// Reduces two messages at a time, and rounds each partial result to the type.
std::vector<std::byte> reduce(DataType type, Op op, const Pattern& pattern,
                              const std::vector<int>& ranks) {
  const CombineFunction combine = combine_function(type, op);
  const auto contribution = [&](int rank) {
    std::vector<std::byte> data(kCount * size_of(type));
    pattern.write(data.data(), 0, kCount, rank);
    return data;
  };
  const auto run = [&](std::vector<const void*> in, std::vector<std::byte>& out,
                       std::uint32_t divide_by, const CombineExtras& extras) {
    void* to = out.data();
    CombineArgs args{in.data(), static_cast<int>(in.size()), &to, 1, kCount};
    args.divide_by = divide_by;
    args.extras = &extras;
    combine(args);
  };
  const auto divisor = [&](std::size_t r) {
    return op == Op::avg && r + 1 == ranks.size() ? static_cast<std::uint32_t>(ranks.size()) : 1;
  };
  std::vector<std::byte> result;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::vector<std::byte> mine = contribution(ranks[r]);
    if (op == Op::premul_sum) {
      const Pattern::Element scalar = Pattern::scalar_element(type, ranks[r]);
      run({mine.data()}, mine, 1, {.premultiplied_inputs = 1, .premultiply = scalar.data()});
    }
    if (r == 0)
      run({mine.data()}, result = mine, divisor(r), {});
    else
      run({result.data(), mine.data()}, result, divisor(r), {});
  }
  return result;
}

TEST(PerfPattern, AnyOrderOfReductionGivesTheExpectedBits) {
  for (const DataType type : kTypes)
    for (const Op op : kFolds)
      for (const int size : {1, 2, 3, 5, 8, 64, 100}) {
        const Pattern pattern(type, op, size, 42, kCount);
        std::vector<int> ranks(static_cast<std::size_t>(size));
        std::iota(ranks.begin(), ranks.end(), 0);
        for (int turn = 0; turn < 3; ++turn) {
          const auto result = reduce(type, op, pattern, ranks);
          EXPECT_EQ(pattern.wrong_reduced(result.data(), 0, kCount), 0u)
              << to_string(type) << ' ' << to_string(op) << ' ' << size;
          std::rotate(ranks.begin(), ranks.begin() + size / 2, ranks.end());
          std::reverse(ranks.begin() + size / 3, ranks.end());
        }
      }
}

/// Returns 1 or 2 as an element, written by its bits.
std::vector<std::byte> scalar_of(DataType type, int value) {
  // Both are powers of two, so only the exponent bits of a float are set.
  const auto with = [&](auto one, auto two) {
    const auto element = value == 1 ? one : two;
    std::vector<std::byte> bytes(sizeof element);
    std::memcpy(bytes.data(), &element, sizeof element);
    return bytes;
  };
  switch (type) {
    case DataType::int8:
    case DataType::uint8: return with(std::uint8_t{1}, std::uint8_t{2});
    case DataType::int32:
    case DataType::uint32: return with(std::uint32_t{1}, std::uint32_t{2});
    case DataType::int64:
    case DataType::uint64: return with(std::uint64_t{1}, std::uint64_t{2});
    case DataType::f16: return with(std::uint16_t{0x3c00}, std::uint16_t{0x4000});
    case DataType::bf16: return with(std::uint16_t{0x3f80}, std::uint16_t{0x4000});
    case DataType::f32: return with(1.0f, 2.0f);
    case DataType::f64: return with(1.0, 2.0);
    case DataType::f8e4m3: return with(std::uint8_t{0x38}, std::uint8_t{0x40});
    case DataType::f8e5m2: return with(std::uint8_t{0x3c}, std::uint8_t{0x40});
    default: return {};
  }
}

TEST(PerfPattern, TheScalarsOfAPremultipliedSumAreOneAndTwoByTurnsInEveryType) {
  for (const DataType type : kTypes)
    for (const int rank : {0, 1, 2, 3}) {
      std::vector<std::byte> expected = scalar_of(type, rank % 2 == 0 ? 1 : 2);
      expected.resize(sizeof(Pattern::Element));
      EXPECT_TRUE(std::ranges::equal(Pattern::scalar_element(type, rank), expected))
          << to_string(type) << ", rank " << rank;
    }
}

TEST(PerfPattern, AMissingOrDoubledContributionIsSeen) {
  for (const DataType type : kTypes)
    for (const Op op : {Op::sum, Op::prod, Op::avg, Op::premul_sum}) {
      const Pattern pattern(type, op, 4, 1, kCount);
      for (const std::vector<int>& ranks : {std::vector{0, 1, 2}, {0, 1, 2, 2}, {0, 1, 2, 3, 3}}) {
        const auto result = reduce(type, op, pattern, ranks);
        EXPECT_GT(pattern.wrong_reduced(result.data(), 0, kCount), kCount / 4)
            << to_string(type) << ' ' << to_string(op);
      }
    }
}

TEST(PerfPattern, EachOfManyRanksIsSeenToBeMissing) {
  for (const DataType type : {DataType::f8e5m2, DataType::f8e4m3, DataType::bf16}) {
    const Pattern pattern(type, Op::sum, 64, 1, kCount);
    for (int missing = 0; missing < 64; ++missing) {
      std::vector<int> ranks;
      for (int rank = 0; rank < 64; ++rank)
        if (rank != missing) ranks.push_back(rank);
      const auto result = reduce(type, Op::sum, pattern, ranks);
      EXPECT_GT(pattern.wrong_reduced(result.data(), 0, kCount), 10u)
          << to_string(type) << " without rank " << missing;
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
  const auto stale = reduce(DataType::f32, Op::sum, before, {0, 1});
  EXPECT_GT(now.wrong_reduced(stale.data(), 0, kCount), kCount / 2);
}

}  // namespace
}  // namespace tutti::perf
