// Tests of premultiplied sums, reductions that the program defines, and accumulate = f32, through
// the public API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "../compute/reference.h"
#include "collectives/algorithms/algorithms.h"
#include "threads.h"

namespace tutti::test {
namespace {

class Reductions : public testing::TestWithParam<const char*> {
 protected:
  Config config() const { return quick_config(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Transports, Reductions, testing::Values("local", "shm"),
                         [](const auto& tested) { return std::string(tested.param); });

std::vector<std::string> serving(Collective what, int ranks) {
  std::vector<std::string> names{""};
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.knows(what, ranks)) names.emplace_back(algorithm.name);
  return names;
}

// --- premultiplied sum ---

TEST_P(Reductions, APremultipliedSumMultipliesEachRanksInputOnceByThatRanksScalar) {
  EXPECT_THAT(run_ranks(3, config(),
                        [](Communicator& comm) {
                          const double scalar = comm.rank() + 2;
                          for (const std::string& algorithm : serving(Collective::all_reduce, 3))
                            for (const std::size_t count : {std::size_t{1}, std::size_t{20'001}}) {
                              const CallOptions options{
                                  .timeout = {}, .algorithm = algorithm, .premultiplier = &scalar};
                              std::vector<double> in(count, comm.rank() + 1), out(count);
                              comm.all_reduce(in.data(), out.data(), count, DataType::f64,
                                              Op::premul_sum, options);
                              EXPECT_THAT(out, AllAre(1.0 * 2 + 2.0 * 3 + 3.0 * 4)) << algorithm;
                              EXPECT_THAT(in, AllAre(comm.rank() + 1.0));
                              comm.all_reduce(in.data(), in.data(), count, DataType::f64,
                                              Op::premul_sum, options);
                              EXPECT_THAT(in, AllAre(20.0)) << algorithm << " in place";
                            }
                        }),
              Each(IsEmpty()));
}

TEST_P(Reductions, TheScalarOfAnAsynchronousOrPersistentCallMayGoAwayAtOnce) {
  EXPECT_THAT(
      run_ranks(2, config(),
                [](Communicator& comm) {
                  std::complex<double> scalar(0, 1);
                  const CallOptions options{
                      .timeout = {}, .algorithm = {}, .premultiplier = &scalar};
                  std::vector<std::complex<double>> in(1000, {1, 2}), out(1000);
                  Work work = comm.all_reduce_async(in.data(), out.data(), 1000,
                                                    DataType::complex128, Op::premul_sum, options);
                  Persistent call = comm.all_reduce_init(
                      in.data(), out.data(), 1000, DataType::complex128, Op::premul_sum, options);
                  scalar = 7;
                  work.wait();
                  EXPECT_THAT(out, AllAre(std::complex<double>(-4, 2)));
                  for (int start = 0; start < 3; ++start) {
                    out.assign(1000, 0);
                    if (start == 1)
                      call.start().wait();
                    else
                      call.run();
                    EXPECT_THAT(out, AllAre(std::complex<double>(-4, 2)));
                  }
                }),
      Each(IsEmpty()));
}

TEST_P(Reductions, AMissingOrNeedlessScalarIsRefusedAndMayBeCorrected) {
  EXPECT_THAT(
      run_ranks(2, config(),
                [](Communicator& comm) {
                  std::vector<std::int32_t> data(10, comm.rank() + 1);
                  const std::int32_t three = 3;
                  const CallOptions with{.timeout = {}, .algorithm = {}, .premultiplier = &three};
                  EXPECT_THAT(outcome_of([&] { comm.all_reduce(std::span(data), Op::premul_sum); }),
                              AllOf(StartsWith("usage: all_reduce"), HasSubstr("premultiplier")));
                  EXPECT_THAT(outcome_of([&] { comm.all_reduce(std::span(data), Op::sum, with); }),
                              AllOf(StartsWith("usage: "), HasSubstr("premul_sum alone")));
                  EXPECT_THAT(outcome_of([&] { comm.broadcast(std::span(data), 0, with); }),
                              StartsWith("usage: "));
                  comm.all_reduce(std::span(data), Op::premul_sum, with);
                  EXPECT_THAT(data, AllAre(9));
                }),
      Each(IsEmpty()));
}

// Every rank must round a product in the same way.
TEST_P(Reductions, APremultipliedSumOf16BitsHasTheSameBitsOnAllRanksByEveryAlgorithm) {
  constexpr std::size_t kCount = 777;
  for (const std::string& algorithm : serving(Collective::all_reduce, 4)) {
    std::mutex mutex;
    std::vector<std::vector<std::uint16_t>> results;
    EXPECT_THAT(
        run_ranks(4, config(),
                  [&](Communicator& comm) {
                    const auto scalar =
                        reference::nearest<bfloat16>(1.7F + 0.3F * static_cast<float>(comm.rank()));
                    std::vector<bfloat16> data(kCount);
                    for (std::size_t i = 0; i < kCount; ++i)
                      data[i] = reference::nearest<bfloat16>(
                          0.01F * static_cast<float>(i) + 0.37F * static_cast<float>(comm.rank()));
                    comm.all_reduce(
                        std::span(data), Op::premul_sum,
                        {.timeout = {}, .algorithm = algorithm, .premultiplier = &scalar});
                    const std::lock_guard lock(mutex);
                    results.emplace_back();
                    for (const bfloat16 x : data) results.back().push_back(x.bits);
                  }),
        Each(IsEmpty()));
    EXPECT_THAT(results, Each(results[0])) << algorithm;
  }
}

// --- a reduction that the program defines ---

// It has 12 bytes, which divide no cache line. The larger key wins, and its owner with it.
struct Best {
  std::int32_t key, owner, count;
};
void keep_best(const void* in, void* inout, std::size_t count, void*) {
  const auto* left = static_cast<const Best*>(in);
  auto* right = static_cast<Best*>(inout);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t both = left[i].count + right[i].count;
    if (left[i].key > right[i].key) right[i] = left[i];
    right[i].count = both;
  }
}
constexpr UserReduction kBest{"best", sizeof(Best), keep_best};

// Placeholders for a call's type and op, which have no meaning where options carry a reduction.
constexpr DataType kNoType = DataType::uint8;
constexpr Op kNoOp = Op::sum;

CallOptions with(const UserReduction& reduction, CallOptions options = {}) {
  options.reduction = &reduction;
  return options;
}

Best best_of(int rank, std::size_t i) {
  return {static_cast<std::int32_t>((i * 7 + static_cast<std::size_t>(rank) * 5) % 11) * 8 + rank,
          rank, 1};
}
std::vector<Best> bests(int rank, std::size_t count) {
  std::vector<Best> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(best_of(rank, i));
  return all;
}
std::string difference(const Best* found, std::size_t first, std::size_t count, int ranks) {
  for (std::size_t i = 0; i < count; ++i) {
    Best expected = best_of(0, first + i);
    for (int rank = 1; rank < ranks; ++rank)
      if (best_of(rank, first + i).key > expected.key) expected = best_of(rank, first + i);
    expected.count = ranks;
    if (std::memcmp(&found[i], &expected, sizeof expected) != 0)
      return "element " + std::to_string(i) + " is of rank " + std::to_string(found[i].owner);
  }
  return "";
}

TEST_P(Reductions, AReductionOfOnesOwnOnElementsOfOnesOwnWorksByEveryAlgorithm) {
  constexpr int kRanks = 3;
  EXPECT_THAT(
      run_ranks(kRanks, config(),
                [](Communicator& comm) {
                  for (const std::size_t count :
                       {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{10'007}}) {
                    for (const std::string& name : serving(Collective::all_reduce, kRanks)) {
                      const CallOptions options{.timeout = {}, .algorithm = name};
                      std::vector<Best> data = bests(comm.rank(), count), out(count);
                      comm.all_reduce(data.data(), out.data(), count, kNoType, kNoOp,
                                      with(kBest, options));
                      EXPECT_EQ(difference(out.data(), 0, count, kRanks), "") << name;
                      comm.all_reduce_async(data.data(), data.data(), count, kNoType, kNoOp,
                                            with(kBest, options))
                          .wait();
                      EXPECT_EQ(difference(data.data(), 0, count, kRanks), "") << name;
                    }
                    for (const std::string& name : serving(Collective::reduce, kRanks)) {
                      std::vector<Best> data = bests(comm.rank(), count);
                      comm.reduce(data.data(), data.data(), count, kNoType, kNoOp, 2,
                                  with(kBest, {.timeout = {}, .algorithm = name}));
                      if (comm.rank() == 2) {
                        EXPECT_EQ(difference(data.data(), 0, count, kRanks), "") << name;
                      }
                    }
                    for (const std::string& name : serving(Collective::reduce_scatter, kRanks)) {
                      const std::vector<Best> data = bests(comm.rank(), kRanks * count);
                      std::vector<Best> out(count);
                      const auto first = static_cast<std::size_t>(comm.rank()) * count;
                      Persistent call =
                          comm.reduce_scatter_init(data.data(), out.data(), count, kNoType, kNoOp,
                                                   with(kBest, {.timeout = {}, .algorithm = name}));
                      call.run();
                      EXPECT_EQ(difference(out.data(), first, count, kRanks), "") << name;
                    }
                  }
                }),
      Each(IsEmpty()));
}

// The blocks have different lengths and another order than the ranks.
constexpr int kShares = 4;
constexpr std::array<std::size_t, kShares> kCounts{3001, 0, 7, 100}, kPlaces{110, 0, 101, 0};
constexpr std::size_t kEnd = 3111;
struct Share {
  std::size_t first, count;
};
Share share(const Communicator& comm) {
  const auto rank = static_cast<std::size_t>(comm.rank());
  return {kPlaces[rank], kCounts[rank]};
}

TEST_P(Reductions, AReductionOfOnesOwnWorksOnBlocksOfDifferentLengthsByEveryAlgorithm) {
  for (const std::string& name : serving(Collective::reduce_scatter, kShares))
    EXPECT_THAT(run_ranks(kShares, config(),
                          [&](Communicator& comm) {
                            const std::vector<Best> in = bests(comm.rank(), kEnd);
                            const auto [first, count] = share(comm);
                            const CallOptions options{.timeout = {}, .algorithm = name};
                            std::vector<Best> out(count);
                            comm.reduce_scatterv(in.data(), out.data(), kCounts, kPlaces, kNoType,
                                                 kNoOp, with(kBest, options));
                            EXPECT_EQ(difference(out.data(), first, count, kShares), "") << name;
                            out.assign(count, {});
                            comm.reduce_scatterv_async(in.data(), out.data(), kCounts, kPlaces,
                                                       kNoType, kNoOp, with(kBest, options))
                                .wait();
                            EXPECT_EQ(difference(out.data(), first, count, kShares), "") << name;
                            out.assign(count, {});
                            comm.reduce_scatterv_init(in.data(), out.data(), kCounts, kPlaces,
                                                      kNoType, kNoOp, with(kBest, options))
                                .run();
                            EXPECT_EQ(difference(out.data(), first, count, kShares), "") << name;
                            const std::vector<std::size_t> endless(kShares, ~std::size_t{0} / 16);
                            EXPECT_THAT(outcome_of([&] {
                                          comm.reduce_scatterv(in.data(), out.data(), endless, {},
                                                               kNoType, kNoOp, with(kBest));
                                        }),
                                        AllOf(StartsWith("usage: reduce_scatterv: counts[0]: "),
                                              HasSubstr("elements of 12 bytes")));
                          }),
                Each(IsEmpty()));
}

// Texts of 4096 bytes that are concatenated, which is associative but not commutative.
struct Text {
  char letters[4096];
};
void append(const void* in, void* inout, std::size_t count, void*) {
  for (std::size_t i = 0; i < count; ++i) {
    Text joined = static_cast<const Text*>(in)[i];
    std::strcat(joined.letters, static_cast<Text*>(inout)[i].letters);
    static_cast<Text*>(inout)[i] = joined;
  }
}

TEST_P(Reductions, TheLargestElementsGoInRankOrderWhereTheAlgorithmSaysSo) {
  const UserReduction appended{"append", sizeof(Text), append};
  Config small = config();
  // This is one element: an algorithm that puts several into a message cannot be chosen.
  small.message_bytes = 4096;
  EXPECT_THAT(
      run_ranks(4, small,
                [&](Communicator& comm) {
                  for (const char* algorithm : {"one_shot", "all_pairs"}) {
                    std::vector<Text> data(5);
                    for (Text& text : data)
                      std::strcpy(text.letters, std::to_string(comm.rank()).c_str());
                    comm.all_reduce(data.data(), data.data(), data.size(), kNoType, kNoOp,
                                    with(appended, {.timeout = {}, .algorithm = algorithm}));
                    for (const Text& text : data) EXPECT_STREQ(text.letters, "0123") << algorithm;
                  }
                  std::vector<Text> blocks(4), own(1);
                  for (Text& text : blocks)
                    std::strcpy(text.letters, std::to_string(comm.rank()).c_str());
                  EXPECT_THAT(
                      outcome_of([&] {
                        comm.reduce_scatter(
                            blocks.data(), own.data(), 1, kNoType, kNoOp,
                            with(appended, {.timeout = {}, .algorithm = "recursive_doubling"}));
                      }),
                      AllOf(StartsWith("usage: "), HasSubstr("in one step")));
                  comm.reduce_scatter(blocks.data(), own.data(), 1, kNoType, kNoOp, with(appended));
                  EXPECT_EQ(std::string(own[0].letters).size(), 4u);
                }),
      Each(IsEmpty()));
}

TEST_P(Reductions, RanksWithDifferentReductionsGetAMismatchThatNamesTheirs) {
  const auto outcomes = run_ranks(2, config(), [](Communicator& comm) {
    const UserReduction worst{"worst", sizeof(Best), keep_best};
    std::vector<Best> data(3);
    comm.all_reduce(data.data(), data.data(), 3, kNoType, kNoOp,
                    with(comm.rank() == 0 ? kBest : worst));
  });
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("mismatch: "), HasSubstr("reduction #"))));
  EXPECT_THAT(outcomes[0], HasSubstr("all_reduce(3 x 12 bytes, reduction 'best' #"));
  EXPECT_THAT(outcomes[1], HasSubstr("reduction 'worst' #"));
}

TEST_P(Reductions, ElementsOfDifferentSizesAreAMismatch) {
  const auto outcomes = run_ranks(2, config(), [](Communicator& comm) {
    const UserReduction wider{"best", 16, keep_best};
    std::vector<char> data(64);
    comm.all_reduce(data.data(), data.data(), 3, kNoType, kNoOp,
                    with(comm.rank() == 0 ? kBest : wider));
  });
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("mismatch: "), HasSubstr("3 x 12 bytes"),
                                   HasSubstr("3 x 16 bytes"))));
}

TEST_P(Reductions, AWrongReductionIsRefusedAndTheCommunicatorGoesOn) {
  EXPECT_THAT(
      run_ranks(2, config(),
                [](Communicator& comm) {
                  std::vector<char> data(64);
                  const auto outcome = [&](const UserReduction& reduction) {
                    return outcome_of([&] {
                      comm.all_reduce(data.data(), data.data(), 1, kNoType, kNoOp, with(reduction));
                    });
                  };
                  EXPECT_THAT(outcome({"none", 8, nullptr}),
                              AllOf(StartsWith("usage: "), HasSubstr("\"none\" has no function")));
                  EXPECT_THAT(outcome({"empty", 0, keep_best}), HasSubstr("1 to 4096"));
                  EXPECT_THAT(outcome({"huge", 4097, keep_best}), HasSubstr("1 to 4096"));
                  const float scalar = 2;
                  EXPECT_THAT(outcome_of([&] {
                                comm.all_reduce(data.data(), data.data(), 1, kNoType, kNoOp,
                                                with(kBest, {.timeout = {},
                                                             .algorithm = {},
                                                             .premultiplier = &scalar}));
                              }),
                              StartsWith("usage: "));
                  EXPECT_THAT(
                      outcome_of([&] { comm.broadcast(data.data(), 8, kNoType, 0, with(kBest)); }),
                      HasSubstr("broadcast: CallOptions::reduction is for all_reduce"));
                  comm.barrier();
                }),
      Each(IsEmpty()));
}

TEST_P(Reductions, WhatTheFunctionThrowsEndsTheCallOnThisRankAndItsPeersAreToldWhy) {
  for (const bool asynchronous : {false, true}) {
    const auto outcomes = run_ranks(3, config(), [&](Communicator& comm) {
      bool throws = comm.rank() == 1;
      const UserReduction fails{"fails", 4,
                                [](const void*, void*, std::size_t, void* context) {
                                  if (*static_cast<bool*>(context))
                                    throw std::runtime_error("out of range");
                                },
                                &throws};
      std::vector<std::int32_t> data(1000);
      if (asynchronous)
        comm.all_reduce_async(data.data(), data.data(), 1000, kNoType, kNoOp, with(fails)).wait();
      else
        comm.all_reduce(data.data(), data.data(), 1000, kNoType, kNoOp, with(fails));
      comm.barrier();
    });
    EXPECT_THAT(outcomes[1], AllOf(StartsWith("usage: rank 1 of 3: operation #0 all_reduce"),
                                   HasSubstr("'fails'"), HasSubstr("threw: out of range")));
    for (const int rank : {0, 2})
      EXPECT_THAT(outcomes[static_cast<std::size_t>(rank)],
                  AllOf(StartsWith("usage: "), HasSubstr("rank 1 has failed and reports"),
                        HasSubstr("out of range")));
  }
}

// --- in groups ---

void add(const void* in, void* inout, std::size_t count, void*) {
  for (std::size_t i = 0; i < count; ++i)
    static_cast<std::int32_t*>(inout)[i] += static_cast<const std::int32_t*>(in)[i];
}
constexpr UserReduction kAdd{"add", sizeof(std::int32_t), add};

TEST_P(Reductions, InAGroupEveryCallKeepsItsScalarAndItsReductionUntilTheEnd) {
  EXPECT_THAT(run_ranks(3, config(),
                        [](Communicator& comm) {
                          Communicator other = comm.dup();
                          Group group;
                          for (const bool asynchronous : {false, true}) {
                            std::vector<double> twice(1000, comm.rank() + 1), scaled = twice;
                            std::vector<Best> best = bests(comm.rank(), 1000);
                            std::vector<std::int32_t> added(1000, comm.rank());
                            double scalar = 2;
                            const CallOptions premultiplied{.timeout = {},
                                                            .algorithm = {},
                                                            .premultiplier = &scalar,
                                                            .accumulate = Accumulate::as_configured,
                                                            .group = &group};
                            CallOptions plain = premultiplied;
                            plain.premultiplier = nullptr;
                            comm.all_reduce(std::span(twice), Op::premul_sum, premultiplied);
                            scalar = comm.rank() + 3;
                            comm.all_reduce(best.data(), best.data(), best.size(), kNoType, kNoOp,
                                            with(kBest, plain));
                            other.all_reduce(std::span(scaled), Op::premul_sum, premultiplied);
                            scalar = 0;
                            comm.all_reduce(added.data(), added.data(), added.size(), kNoType,
                                            kNoOp, with(kAdd, plain));
                            EXPECT_THAT(outcome_of([&] {
                                          comm.all_reduce(std::span(twice), Op::premul_sum, plain);
                                        }),
                                        AllOf(StartsWith("usage: "), HasSubstr("premultiplier")));
                            EXPECT_THAT(twice, AllAre(comm.rank() + 1.0));
                            if (asynchronous)
                              group.end_async().wait();
                            else
                              group.end();
                            EXPECT_THAT(twice, AllAre(2.0 * (1 + 2 + 3)));
                            EXPECT_THAT(scaled, AllAre(1.0 * 3 + 2 * 4 + 3 * 5));
                            EXPECT_EQ(difference(best.data(), 0, best.size(), 3), "");
                            EXPECT_THAT(added, AllAre(0 + 1 + 2));
                          }
                        }),
              Each(IsEmpty()));
}

TEST_P(Reductions, WhatAFunctionThrowsInAGroupEndsItsCommunicatorAlone) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          Communicator other = comm.dup();
                          const UserReduction fails{"fails", 4,
                                                    [](const void*, void*, std::size_t, void*) {
                                                      throw std::runtime_error("out of range");
                                                    }};
                          std::vector<std::int32_t> data(1000, 1), whole(1000, 1);
                          Group group;
                          CallOptions grouped;
                          grouped.group = &group;
                          comm.all_reduce(data.data(), data.data(), data.size(), kNoType, kNoOp,
                                          with(fails, grouped));
                          other.all_reduce(std::span(whole), Op::sum, grouped);
                          EXPECT_THAT(outcome_of([&] { group.end(); }),
                                      AllOf(StartsWith("usage: "), HasSubstr("out of range")));
                          EXPECT_TRUE(comm.failure().has_value());
                          EXPECT_FALSE(other.failure().has_value());
                          EXPECT_THAT(whole, AllAre(2));
                          other.barrier();
                        }),
              Each(IsEmpty()));
}

// --- accumulate = f32 ---

// Rank 0 has 1, the others a little more or less than half of a unit of the last place. A sum that
// is rounded at each hop grows too much or not at all.
template <typename T>
float addend(int rank, std::size_t i) {
  const float last_place = std::ldexp(1.0F, -reference::kFormat<T>.mantissa_bits);
  return rank == 0 ? 1.0F : last_place * (i % 2 == 0 ? 0.4375F : 0.5625F);
}

// Returns their sum or average, which f32 holds exactly because they are few bits apart.
template <typename T>
T rounded_once(int ranks, std::size_t i, Op op) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank)
    sum += reference::to_float(reference::nearest<T>(addend<T>(rank, i)));
  return reference::nearest<T>(op == Op::avg ? sum / static_cast<float>(ranks) : sum);
}

template <typename T>
void check_accumulation(int ranks, const Config& config, Op op, std::string_view algorithm) {
  constexpr std::size_t kCount = 3001;
  const CallOptions options{.timeout = {},
                            .algorithm = algorithm,
                            .premultiplier = nullptr,
                            .accumulate = Accumulate::f32};
  EXPECT_THAT(
      run_ranks(ranks, config,
                [&](Communicator& comm) {
                  std::vector<T> data(kCount), out(kCount), expected(kCount);
                  for (std::size_t i = 0; i < kCount; ++i) {
                    data[i] = reference::nearest<T>(addend<T>(comm.rank(), i));
                    expected[i] = rounded_once<T>(ranks, i, op);
                  }
                  const auto same = [&](const std::vector<T>& found) {
                    return std::memcmp(found.data(), expected.data(), kCount * sizeof(T)) == 0;
                  };
                  comm.all_reduce(data.data(), out.data(), kCount, data_type_of<T>(), op, options);
                  EXPECT_TRUE(same(out)) << algorithm << " " << to_string(op);
                  comm.all_reduce_async(data.data(), data.data(), kCount, data_type_of<T>(), op,
                                        options)
                      .wait();
                  EXPECT_TRUE(same(data)) << algorithm << " " << to_string(op) << " in place";
                }),
      Each(IsEmpty()));
}

TEST_P(Reductions, InF32OverAllHopsASumIsRoundedOnceAndAlikeOnAllRanks) {
  for (const int ranks : {3, 4, 8})
    for (const Algorithm& algorithm : algorithms()) {
      if (!algorithm.knows(Collective::all_reduce, ranks) || algorithm.rewrites_output) continue;
      check_accumulation<bfloat16>(ranks, config(), Op::sum, algorithm.name);
      check_accumulation<float16>(ranks, config(), Op::avg, algorithm.name);
    }
  check_accumulation<float8_e4m3>(5, config(), Op::sum, "");
  check_accumulation<float8_e5m2>(3, config(), Op::avg, "");
}

TEST_P(Reductions, InF32OverAllHopsBlocksOfDifferentLengthsAreRoundedOnce) {
  for (const Algorithm& algorithm : algorithms()) {
    if (!algorithm.knows(Collective::reduce_scatter, kShares) || algorithm.rewrites_output)
      continue;
    const CallOptions options{.timeout = {},
                              .algorithm = algorithm.name,
                              .premultiplier = nullptr,
                              .accumulate = Accumulate::f32};
    EXPECT_THAT(
        run_ranks(kShares, config(),
                  [&](Communicator& comm) {
                    std::vector<bfloat16> in(kEnd), expected(share(comm).count);
                    for (std::size_t i = 0; i < kEnd; ++i)
                      in[i] = reference::nearest<bfloat16>(addend<bfloat16>(comm.rank(), i));
                    for (std::size_t i = 0; i < expected.size(); ++i)
                      expected[i] = rounded_once<bfloat16>(kShares, share(comm).first + i, Op::sum);
                    std::vector<bfloat16> out(expected.size());
                    comm.reduce_scatterv(in.data(), out.data(), kCounts, kPlaces, DataType::bf16,
                                         Op::sum, options);
                    EXPECT_TRUE(out.empty() ||
                                std::memcmp(out.data(), expected.data(), 2 * out.size()) == 0)
                        << algorithm.name;
                  }),
        Each(IsEmpty()));
  }
}

TEST_P(Reductions, RoundedInEachStepTheSameSumComesOutDifferently) {
  EXPECT_THAT(run_ranks(8, config(),
                        [](Communicator& comm) {
                          std::vector<bfloat16> data(
                              100, reference::nearest<bfloat16>(addend<bfloat16>(comm.rank(), 0)));
                          auto accumulates_f32 = data;
                          comm.all_reduce(std::span(data), Op::sum, {{}, "ring"});
                          comm.all_reduce(std::span(accumulates_f32), Op::sum,
                                          {{}, "ring", nullptr, Accumulate::f32});
                          EXPECT_NE(std::memcmp(data.data(), accumulates_f32.data(), 200), 0);
                        }),
              Each(IsEmpty()));
}

TEST_P(Reductions, TheConfigurationMayAskForF32AndACallForTheOther) {
  Config accumulates_f32 = config();
  accumulates_f32.accumulate = Accumulate::f32;
  EXPECT_THAT(
      run_ranks(
          2, accumulates_f32,
          [](Communicator& comm) {
            std::vector<bfloat16> data(8);
            // The algorithm cannot serve it, which shows that the configuration is in effect.
            const std::string_view rewrites = "recursive_doubling";
            EXPECT_THAT(outcome_of([&] {
                          comm.all_reduce(std::span(data), Op::sum, {{}, rewrites});
                        }),
                        AllOf(StartsWith("usage: "), HasSubstr("accumulate = f32")));
            comm.all_reduce(std::span(data), Op::sum, {{}, rewrites, nullptr, Accumulate::step});
            comm.all_reduce(std::span(data), Op::max, {{}, rewrites});
            std::vector<float> f32(8);
            comm.all_reduce(std::span(f32), Op::sum, {{}, rewrites});
          }),
      Each(IsEmpty()));
}

TEST_P(Reductions, RanksThatAccumulateDifferentlyGetAMismatch) {
  const auto outcomes = run_ranks(2, config(), [](Communicator& comm) {
    std::vector<float16> data(8);
    comm.all_reduce(std::span(data), Op::sum,
                    {{}, "ring", nullptr, comm.rank() == 0 ? Accumulate::f32 : Accumulate::step});
  });
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("mismatch: "),
                                   HasSubstr("all_reduce(8 x f16, sum, accumulate = f32)"),
                                   HasSubstr("all_reduce(8 x f16, sum)"))));
}

}  // namespace
}  // namespace tutti::test
