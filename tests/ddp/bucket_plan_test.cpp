#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <tutti/ddp.hpp>

namespace tutti::ddp {
namespace {

constexpr std::size_t kMiB = 1u << 20;

std::vector<Parameter> parameters_of(const std::vector<std::size_t>& counts,
                                     const std::vector<DataType>& types) {
  std::vector<Parameter> parameters;
  for (std::size_t i = 0; i < counts.size(); ++i)
    parameters.push_back({fmt::format("p{}", i), nullptr, counts[i], types[i % types.size()]});
  return parameters;
}

std::vector<std::size_t> members(const Bucket& bucket) {
  std::vector<std::size_t> result;
  for (const Slot& slot : bucket.slots) result.push_back(slot.parameter);
  return result;
}

std::size_t padded(const Parameter& parameter) {
  return (parameter.count * size_of(parameter.type) + 63) / 64 * 64;
}

// Checks all properties of a plan; together they determine the plan.
void expect_good_plan(const std::vector<Parameter>& parameters, const BucketOptions& options) {
  const std::vector<Bucket> buckets = plan_buckets(parameters, options);
  std::set<std::size_t> placed;
  std::map<DataType, std::pair<const Bucket*, std::size_t>> of_type;  // last bucket and limit
  std::size_t previous_completion = parameters.size();
  for (const Bucket& bucket : buckets) {
    ASSERT_FALSE(bucket.slots.empty());
    std::size_t next_offset = 0;
    std::size_t previous = parameters.size();
    for (const Slot& slot : bucket.slots) {
      ASSERT_LT(slot.parameter, previous) << "not in reverse order of use";
      previous = slot.parameter;
      EXPECT_TRUE(placed.insert(slot.parameter).second) << "placed twice";
      EXPECT_EQ(parameters[slot.parameter].type, bucket.type);
      EXPECT_EQ(slot.offset_bytes, next_offset);
      next_offset += padded(parameters[slot.parameter]);
    }
    EXPECT_EQ(bucket.bytes, next_offset);
    EXPECT_LT(previous, previous_completion) << "a bucket stands before one that completes earlier";
    previous_completion = previous;

    auto& [before, cap] =
        of_type.try_emplace(bucket.type, nullptr, options.first_cap_bytes).first->second;
    if (before != nullptr) {
      EXPECT_LT(bucket.slots.front().parameter, before->slots.back().parameter);
      EXPECT_GT(before->bytes + padded(parameters[bucket.slots.front().parameter]), cap)
          << "a bucket was closed although the next gradient would have fitted";
      cap = options.cap_bytes;
    }
    EXPECT_TRUE(bucket.slots.size() == 1 || bucket.bytes <= cap);
    before = &bucket;
  }
  EXPECT_EQ(placed.size(), parameters.size());
}

TEST(BucketPlan, HoldsItsPromisesForEverySmallListOfSizesTypesAndCaps) {
  constexpr std::array<std::size_t, 6> kCounts{0, 1, 16, 17, 40, 100};
  const std::vector<std::vector<DataType>> mixes{{DataType::f32},
                                                 {DataType::f32, DataType::bf16},
                                                 {DataType::f64, DataType::f32, DataType::f32}};
  for (std::size_t length = 0; length <= 5; ++length) {
    std::size_t lists = 1;
    for (std::size_t k = 0; k < length; ++k) lists *= kCounts.size();
    for (std::size_t list = 0; list < lists; ++list) {
      std::vector<std::size_t> counts;
      for (std::size_t k = 0, digits = list; k < length; ++k, digits /= kCounts.size())
        counts.push_back(kCounts[digits % kCounts.size()]);
      for (const auto& types : mixes)
        for (const BucketOptions options :
             {BucketOptions{128, 64}, BucketOptions{256, 256}, BucketOptions{64, 512}})
          expect_good_plan(parameters_of(counts, types), options);
      ASSERT_FALSE(HasFailure()) << "list " << list << " of length " << length;
    }
  }
}

TEST(BucketPlan, GoesFromTheLastParameterToTheFirst) {
  const auto plan = plan_buckets(parameters_of({16, 16, 16}, {DataType::f32}));
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0], (Bucket{DataType::f32, 192, {{2, 0}, {1, 64}, {0, 128}}}));
}

TEST(BucketPlan, DefaultsAreOneMebibyteForTheFirstBucketAndTwentyFiveForTheRest) {
  // There are 13 gradients of 1 MiB and one of 25 MiB. The first is alone, 12 are together, and the
  // large one is alone.
  std::vector<std::size_t> counts(14, kMiB / 4);
  counts[0] = 25 * kMiB / 4;
  const auto plan = plan_buckets(parameters_of(counts, {DataType::f32}));
  ASSERT_EQ(plan.size(), 3u);
  EXPECT_EQ(plan[0].bytes, kMiB);
  EXPECT_EQ(plan[1].bytes, 12 * kMiB);
  EXPECT_EQ(members(plan[2]), (std::vector<std::size_t>{0}));
}

TEST(BucketPlan, GradientLargerThanTheCapHasABucketOfItsOwn) {
  const auto plan = plan_buckets(parameters_of({1, 1000, 1}, {DataType::f32}), {128, 128});
  ASSERT_EQ(plan.size(), 3u);
  EXPECT_EQ(members(plan[1]), (std::vector<std::size_t>{1}));
}

TEST(BucketPlan, EachDataTypeHasBucketsOfItsOwnAndTheyComeAsBackwardCompletesThem) {
  //                                       f32 bf16 f32 bf16 f32 bf16
  const auto plan = plan_buckets(
      parameters_of({16, 16, 16, 16, 16, 16}, {DataType::f32, DataType::bf16}), {128, 64});
  std::vector<std::vector<std::size_t>> all;
  for (const Bucket& bucket : plan) all.push_back(members(bucket));
  EXPECT_EQ(all, (std::vector<std::vector<std::size_t>>{{5}, {4}, {3, 1}, {2, 0}}));
  EXPECT_EQ(plan[0].type, DataType::bf16);
  EXPECT_EQ(plan[1].type, DataType::f32);
}

TEST(BucketPlan, NoParametersMakeNoBuckets) { EXPECT_TRUE(plan_buckets({}).empty()); }

template <typename Call>
std::string usage_message(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(BucketPlan, CapOfZeroIsAnErrorThatSaysWhichCaps) {
  EXPECT_NE(usage_message([] {
              (void)plan_buckets({}, {0, 5});
            }).find("5 B (first) and 0 B"),
            std::string::npos);
  EXPECT_NE(usage_message([] {
              (void)plan_buckets({}, {5, 0});
            }).find("0 B (first) and 5 B"),
            std::string::npos);
}

TEST(BucketPlan, SizesThatOverflowNameTheParameter) {
  constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max() / 4;
  const auto one = parameters_of({1, kHuge}, {DataType::f32});
  EXPECT_NE(usage_message([&] { (void)plan_buckets(one); }).find("'p1'"), std::string::npos);
  const auto sum = parameters_of({1, kHuge - 64, kHuge / 4 * 3, kHuge}, {DataType::int8});
  EXPECT_NO_THROW((void)plan_buckets(sum));
  const auto both = parameters_of({kHuge / 2, kHuge / 2 + 100, kHuge / 2}, {DataType::f64});
  EXPECT_NE(usage_message([&] { (void)plan_buckets(both); }).find("fit in memory"),
            std::string::npos);
}

TEST(BucketPlan, DataTypeThatDoesNotExistIsAnError) {
  const std::vector<Parameter> parameters{{"odd", nullptr, 1, static_cast<DataType>(200)}};
  EXPECT_NE(usage_message([&] { (void)plan_buckets(parameters); }).find("number 200"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::ddp
