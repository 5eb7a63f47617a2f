// Tests of accumulate = reproducible, where sums are functions of the multiset of their summands
// alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <random>

#include "../compute/reference.h"
#include "collectives/algorithms/algorithms.h"
#include "threads.h"

namespace tutti::test {
namespace {

Config reproducible(std::string transports) {
  Config config = quick_config(std::move(transports));
  config.accumulate = Accumulate::reproducible;
  return config;
}

template <typename T>
T number(double value) {
  if constexpr (std::is_same_v<T, std::complex<float>>)
    return {static_cast<float>(value), static_cast<float>(-3 * value)};
  else if constexpr (sizeof(T) < sizeof(float))
    return reference::nearest<T>(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

/// Returns `summands` numbers for each element, whose sum depends on the order of additions.
template <typename T>
std::vector<std::vector<T>> multisets(std::size_t count, std::size_t summands) {
  std::mt19937 random(static_cast<std::uint32_t>(count));
  std::vector<std::vector<T>> all(count);
  for (auto& element : all)
    for (std::size_t k = 0; k < summands; ++k)
      element.push_back(number<T>(
          std::ldexp(static_cast<double>(random()) / 4e9 - 0.5, static_cast<int>(random() % 12))));
  return all;
}

/// Returns the rank's input, which is its summand of each element, dealt out anew for every `seed`.
/// Ranks beyond the number of summands add zero.
template <typename T>
std::vector<T> dealt(std::vector<std::vector<T>> elements, int rank, int ranks, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> own;
  for (auto& element : elements) {
    element.resize(static_cast<std::size_t>(ranks));
    std::shuffle(element.begin(), element.end(), random);
    own.push_back(element[static_cast<std::size_t>(rank)]);
  }
  return own;
}

template <typename T>
bool same_bits(std::span<const T> found, std::span<const T> expected) {
  return found.size() == expected.size() &&
         (found.empty() || std::memcmp(found.data(), expected.data(), found.size_bytes()) == 0);
}

class Reproducible : public testing::TestWithParam<const char*> {
 protected:
  void on_ranks(int ranks, const std::function<void(Communicator&)>& body,
                std::size_t message_bytes = 0) const {
    Config config = reproducible(GetParam());
    config.message_bytes = message_bytes;
    EXPECT_THAT(run_ranks(ranks, config, body), Each(IsEmpty()));
  }

  /// Returns the sum of up to `ranks` summands for each element.
  template <typename T>
  std::vector<T> all_reduced(const std::vector<std::vector<T>>& elements, int ranks, unsigned seed,
                             std::size_t message_bytes = 0, std::string_view algorithm = "") const {
    std::vector<std::vector<T>> results(static_cast<std::size_t>(ranks));
    on_ranks(
        ranks,
        [&](Communicator& comm) {
          auto& data = results[static_cast<std::size_t>(comm.rank())];
          data = dealt(elements, comm.rank(), ranks, seed);
          comm.all_reduce(std::span(data), Op::sum, {{}, algorithm});
        },
        message_bytes);
    for (const auto& result : results)
      EXPECT_TRUE(same_bits<T>(result, results[0])) << ranks << " ranks " << algorithm;
    return results[0];
  }
};

TEST_P(Reproducible, BitsDependNeitherOnTheRanksNorOnWhoHasWhichSummand) {
  // The first count is small enough that every rank adds up all elements. The second is larger.
  for (const std::size_t count : {777, 20'001}) {
    const auto elements = multisets<float>(count, 5);
    const auto expected = all_reduced(elements, 5, 1);
    for (const int ranks : {6, 7, 8, 11, 16})
      EXPECT_TRUE(same_bits<float>(all_reduced(elements, ranks, 1 + static_cast<unsigned>(ranks)),
                                   expected))
          << count << " elements, " << ranks << " ranks";
  }
}

// The test above would find these differences in ordinary sums.
TEST_P(Reproducible, OrdinarySumsOfTheSameSummandsDiffer) {
  const auto elements = multisets<float>(777, 5);
  std::vector<float> sums[2];
  for (unsigned seed : {0u, 1u})
    EXPECT_THAT(run_ranks(5, quick_config(GetParam()),
                          [&](Communicator& comm) {
                            auto data = dealt(elements, comm.rank(), 5, seed);
                            comm.all_reduce(std::span(data));
                            if (comm.rank() == 0) sums[seed] = data;
                          }),
                Each(IsEmpty()));
  EXPECT_FALSE(same_bits<float>(sums[0], sums[1]));
}

TEST_P(Reproducible, NorOnTheAlgorithmNorOnTheSizeOfMessages) {
  for (const int ranks : {2, 3, 8}) {
    const auto elements =
        multisets<float>(ranks == 3 ? 70'001 : 500, static_cast<std::size_t>(ranks));
    const std::vector<float> expected = all_reduced(elements, ranks, 1);
    for (const Algorithm& algorithm : algorithms()) {
      if (!algorithm.knows(Collective::all_reduce, ranks) ||
          (ranks > 2 ? !algorithm.reduces_at_once : algorithm.name == "hierarchical"))
        continue;
      EXPECT_TRUE(same_bits<float>(all_reduced(elements, ranks, 2, 4096, algorithm.name), expected))
          << algorithm.name << ", " << ranks << " ranks";
    }
  }
}

template <typename T>
class ReproducibleTypes : public testing::Test {};
using Floats =
    testing::Types<double, bfloat16, float16, float8_e4m3, float8_e5m2, std::complex<float>>;
TYPED_TEST_SUITE(ReproducibleTypes, Floats);

TYPED_TEST(ReproducibleTypes, HoldsForEveryFloat) {
  const auto elements = multisets<TypeParam>(1001, 4);
  std::vector<TypeParam> results[3];
  for (unsigned k = 0; k < 3; ++k)
    EXPECT_THAT(
        run_ranks(
            k == 2 ? 7 : 4, reproducible("local"),
            [&](Communicator& comm) {
              auto data = dealt(elements, comm.rank(), comm.size(), k);
              comm.all_reduce(std::span(data), Op::sum, {{}, k == 1 ? "one_shot" : "all_pairs"});
              if (comm.rank() == 0) results[k] = data;
            }),
        Each(IsEmpty()));
  EXPECT_TRUE(same_bits<TypeParam>(results[1], results[0]));
  EXPECT_TRUE(same_bits<TypeParam>(results[2], results[0]));
}

TEST_P(Reproducible, ReduceAndReduceScatterGiveWhatAllReduceDoes) {
  constexpr int kRanks = 3;
  constexpr std::size_t kBlock = 30'001;  // Each block has more than one piece.
  const auto elements = multisets<float>(kRanks * kBlock, kRanks);
  const auto expected = all_reduced(elements, kRanks, 4);
  on_ranks(kRanks, [&](Communicator& comm) {
    auto input = dealt(elements, comm.rank(), kRanks, 9);
    std::vector<float> sum(input.size(), -1);
    comm.reduce(input.data(), comm.rank() == 1 ? sum.data() : nullptr, input.size(), DataType::f32,
                Op::sum, 1);
    EXPECT_EQ(same_bits<float>(sum, expected), comm.rank() == 1);
    std::vector<float> own(kBlock);
    const auto mine =
        std::span(expected).subspan(static_cast<std::size_t>(comm.rank()) * kBlock, kBlock);
    comm.reduce_scatter(input.data(), own.data(), kBlock, DataType::f32, Op::sum);
    EXPECT_TRUE(same_bits<float>(own, mine));
    float* const place = input.data() + static_cast<std::size_t>(comm.rank()) * kBlock;
    comm.reduce_scatter(input.data(), place, kBlock, DataType::f32, Op::sum);
    EXPECT_TRUE(same_bits<float>({place, kBlock}, mine));
  });
}

TEST_P(Reproducible, ReduceScattervGivesWhatAllReduceDoesOfBlocksOfAnyLengthAnywhere) {
  constexpr int kRanks = 3;
  for (const auto& counts : std::vector<std::vector<std::size_t>>{
           {5, 0, 70'000}, {1, 2, 3}, {40'000, 30'001, 21'845}, {0, 0, 9}, {0, 0, 0}}) {
    const std::vector<std::size_t> first = {counts[1] + 3, 1, counts[0] + counts[1] + 7};
    const std::size_t all = counts[0] + counts[1] + counts[2] + 7;
    const auto elements = multisets<float>(all, kRanks);
    const auto expected = all_reduced(elements, kRanks, 4);
    on_ranks(kRanks, [&](Communicator& comm) {
      const auto input = dealt(elements, comm.rank(), kRanks, 9);
      const auto own = static_cast<std::size_t>(comm.rank());
      const auto mine = std::span(expected).subspan(first[own], counts[own]);
      std::vector<float> out(counts[own] + 1, -1);
      const auto check = [&](const char* way) {
        EXPECT_TRUE(same_bits<float>(std::span(out).first(counts[own]), mine)) << way;
        EXPECT_EQ(out.back(), -1);
        out.assign(out.size(), -1);
      };
      comm.reduce_scatterv(input.data(), out.data(), counts, first, DataType::f32, Op::sum);
      check("blocking");
      Work work = comm.reduce_scatterv_async(input.data(), out.data(), counts, first, DataType::f32,
                                             Op::sum);
      comm.barrier_async().wait();
      work.wait();
      check("asynchronous");
      Persistent call = comm.reduce_scatterv_init(input.data(), out.data(), counts, first,
                                                  DataType::f32, Op::sum);
      const std::vector<std::size_t> others(kRanks, 1);
      std::vector<float> one(kRanks, 1), three(1);
      comm.reduce_scatterv(one.data(), three.data(), others, {}, DataType::f32, Op::sum);
      EXPECT_EQ(three[0], 3);
      call.run();
      check("persistent");
      const float scalar = 2;
      CallOptions options;
      options.premultiplier = &scalar;
      comm.reduce_scatterv(input.data(), out.data(), counts, first, DataType::f32, Op::premul_sum,
                           options);
      for (float& x : std::span(out).first(counts[own])) x /= 2;
      check("premultiplied by a power of two");
    });
  }
}

TEST_P(Reproducible, EveryWayOfCallingGivesTheSame) {
  const auto elements = multisets<float>(100'000, 2);
  const auto expected = all_reduced(elements, 2, 4);
  on_ranks(2, [&](Communicator& comm) {
    const auto input = dealt(elements, comm.rank(), 2, 9);
    std::vector<float> out(input.size());
    const auto check = [&](const char* way) {
      EXPECT_TRUE(same_bits<float>(out, expected)) << way;
      out.assign(out.size(), 0);
    };
    Work first =
        comm.all_reduce_async(input.data(), out.data(), input.size(), DataType::f32, Op::sum);
    Work behind = comm.barrier_async();
    behind.wait();
    EXPECT_TRUE(first.done());
    check("asynchronous");
    Persistent call =
        comm.all_reduce_init(input.data(), out.data(), input.size(), DataType::f32, Op::sum);
    call.run();
    check("persistent");
    call.start().wait();
    check("persistent, asynchronous");
    Group group;
    CallOptions options;
    options.group = &group;
    std::int32_t one = 1;
    comm.all_reduce(input.data(), out.data(), input.size(), DataType::f32, Op::sum, options);
    comm.all_reduce(std::span(&one, 1), Op::sum, options);
    group.end();
    check("in a group");
    EXPECT_EQ(one, 2);
    options.group = nullptr;
    options.accumulate = Accumulate::reproducible;
    comm.dup().all_reduce(input.data(), out.data(), input.size(), DataType::f32, Op::sum, options);
    check("of a duplicate");
  });
}

// The call may leave the program of an ordinary sum behind, which the next call of its kind must
// not use.
TEST_P(Reproducible, ABlockingCallAfterAnAsynchronousOneOfItsKindIsToo) {
  const auto elements = multisets<float>(777, 5);
  const auto expected = all_reduced(elements, 5, 1);
  on_ranks(5, [&](Communicator& comm) {
    const auto input = dealt(elements, comm.rank(), 5, 2);
    std::vector<float> out(input.size());
    comm.all_reduce_async(input.data(), out.data(), out.size(), DataType::f32, Op::sum).wait();
    EXPECT_TRUE(same_bits<float>(out, expected));
    comm.barrier_async().wait();
    comm.all_reduce_async(input.data(), out.data(), out.size(), DataType::f32, Op::sum).wait();
    comm.all_reduce(input.data(), out.data(), out.size(), DataType::f32, Op::sum);
    EXPECT_TRUE(same_bits<float>(out, expected));
  });
}

TEST_P(Reproducible, AveragesAndPremultipliedSumsAreRoundedOnceMore) {
  on_ranks(4, [](Communicator& comm) {
    std::vector<float> data(3, comm.rank() == 0 ? 1e8F : static_cast<float>(comm.rank()));
    comm.all_reduce(std::span(data), Op::avg);
    EXPECT_THAT(data, AllAre(static_cast<float>((1e8 + 1 + 2 + 3) / 4)));
    const float scalar = static_cast<float>(comm.rank() + 1);
    CallOptions options;
    options.premultiplier = &scalar;
    data.assign(3, comm.rank() == 3 ? -1e8F : 0.5F);
    comm.all_reduce(std::span(data), Op::premul_sum, options);
    EXPECT_THAT(data, AllAre(static_cast<float>(-4e8 + 3)));
  });
}

TEST_P(Reproducible, OtherReductionsAreLeftAsTheyAre) {
  on_ranks(2, [](Communicator& comm) {
    std::vector<std::int64_t> integers(3, comm.rank() + 1);
    comm.all_reduce(std::span(integers), Op::prod);
    EXPECT_THAT(integers, AllAre(2));
    std::vector<float> floats(3, static_cast<float>(comm.rank()));
    comm.all_reduce(std::span(floats), Op::max);
    EXPECT_THAT(floats, AllAre(1.0F));
    std::vector<float> none;
    comm.all_reduce(std::span(none));
  });
}

TEST_P(Reproducible, WhatHasNoSuchFormIsAnErrorAndTheCommunicatorGoesOn) {
  on_ranks(2, [](Communicator& comm) {
    std::vector<float> data(4, 1);
    EXPECT_THAT(outcome_of([&] { comm.all_reduce(std::span(data), Op::prod); }),
                AllOf(StartsWith("usage: all_reduce"), HasSubstr("accumulate = step")));
    comm.all_reduce(std::span(data));
    EXPECT_THAT(data, AllAre(2.0F));
  });
}

TEST_P(Reproducible, AnAlgorithmThatAddsUpPartialSumsIsRefusedAndTheCommunicatorGoesOn) {
  on_ranks(3, [](Communicator& comm) {
    std::vector<float> data(4, 1);
    EXPECT_THAT(outcome_of([&] {
                  comm.all_reduce(std::span(data), Op::sum, {{}, "ring"});
                }),
                AllOf(StartsWith("usage: all_reduce: algorithm 'ring'"), HasSubstr("in one step")));
    comm.all_reduce(std::span(data));
    EXPECT_THAT(data, AllAre(3.0F));
    comm.all_reduce(std::span(data), Op::max, {{}, "ring"});
  });
}

TEST_P(Reproducible, APremultipliedSumHasAMostOfRanksThatItNames) {
  // 65 processes or sockets would show nothing else.
  if (GetParam() != std::string_view("local")) return;
  on_ranks(65, [](Communicator& comm) {
    std::vector<float> data(4, 1);
    const float half = 0.5F;
    EXPECT_THAT(outcome_of([&] {
                  comm.all_reduce(std::span(data), Op::premul_sum, {{}, "", &half});
                }),
                AllOf(StartsWith("unavailable"), HasSubstr("at most 64 ranks")));
    comm.all_reduce(std::span(data));
    EXPECT_THAT(data, AllAre(65.0F));
  });
}

TEST_P(Reproducible, TheSumOfOneSummandIsNoCopy) {
  on_ranks(1, [](Communicator& comm) {
    // In a sum of zeros of both signs the difference would not show.
    std::vector<float> zeros(2, -0.0F);
    comm.all_reduce(std::span(zeros));
    EXPECT_FALSE(std::signbit(zeros[0]));
  });
}

TEST_P(Reproducible, RanksThatDoNotAgreeOnItGetAMismatch) {
  const auto outcomes = run_ranks(2, quick_config(GetParam()), [](Communicator& comm) {
    std::vector<float> data(8);
    const auto how = comm.rank() == 0 ? Accumulate::reproducible : Accumulate::step;
    comm.all_reduce(std::span(data), Op::sum, {{}, "", nullptr, how});
  });
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("mismatch: "), HasSubstr("all_reduce(8 x f32, sum)"),
                                   HasSubstr("(8 x f32, sum, accumulate = reproducible)"))));
}

TEST_P(Reproducible, RanksThatCallDifferentSumsGetAMismatchThatNamesTheCalls) {
  const auto outcomes_of = [](const std::function<void(Communicator&)>& body) {
    return run_ranks(2, reproducible(GetParam()), body);
  };
  EXPECT_THAT(outcomes_of([](Communicator& comm) {
                std::vector<float> data(8);
                comm.all_reduce(std::span(data), comm.rank() == 0 ? Op::sum : Op::avg);
              }),
              Each(AllOf(StartsWith("mismatch: "), HasSubstr("#0 all_reduce(8 x f32, sum, acc"),
                         HasSubstr("#0 all_reduce(8 x f32, avg, acc"))));
  EXPECT_THAT(outcomes_of([](Communicator& comm) {
                std::vector<float> data(comm.rank() == 0 ? 131'072 : 196'608);
                comm.all_reduce(std::span(data));
              }),
              Each(AllOf(StartsWith("mismatch: "), HasSubstr("(131072 x f32, sum"),
                         HasSubstr("(196608 x f32, sum"))));
  EXPECT_THAT(outcomes_of([](Communicator& comm) {
                std::vector<float> data(8);
                const std::vector<std::size_t> counts = {3, comm.rank() == 0 ? 5u : 3u};
                comm.reduce_scatterv(data.data(), data.data() + 8, counts, {}, DataType::f32,
                                     Op::sum);
              }),
              Each(AllOf(StartsWith("mismatch: "), HasSubstr("reduce_scatterv(8 x f32 in all"),
                         HasSubstr("reduce_scatterv(6 x f32 in all"))));
}

INSTANTIATE_TEST_SUITE_P(Over, Reproducible, testing::Values("local", "shm", "tcp"));

}  // namespace
}  // namespace tutti::test
