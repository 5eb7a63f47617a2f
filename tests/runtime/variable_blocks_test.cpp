// all_gatherv, reduce_scatterv, gatherv, scatterv and all_to_allv as a program calls them: right,
// wrong by themselves, and wrong between ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "processes.h"
#include "threads.h"

namespace tutti::test {
namespace {

using Counts = std::vector<std::size_t>;

class VariableBlocks : public testing::TestWithParam<const char*> {
 protected:
  Config config() const { return quick_config(GetParam()); }
};

// Element i of what rank `from` has for rank `to`.
std::int32_t element(int from, int to, std::size_t i) {
  return from * 1'000'000 + to * 100'000 + static_cast<std::int32_t>(i);
}
std::size_t length(int from, int to) {
  return static_cast<std::size_t>(from * 700 + to * 13) % 1500;
}

TEST_P(VariableBlocks, AllGathervPutsBlocksWhereDisplacementsSay) {
  EXPECT_THAT(
      run_ranks(3, config(),
                [](Communicator& comm) {
                  const Counts counts{2, 0, 3}, places{5, 0, 1};
                  std::vector<std::int32_t> in(counts[std::size_t(comm.rank())],
                                               10 * comm.rank() + 10);
                  std::vector<std::int32_t> out(8, -1);
                  comm.all_gatherv(in.data(), out.data(), counts, places, DataType::int32);
                  EXPECT_THAT(out, ElementsAre(-1, 30, 30, 30, -1, 10, 10, -1));
                  out.assign(8, -1);
                  comm.all_gatherv_async(in.data(), out.data(), counts, {}, DataType::int32).wait();
                  EXPECT_THAT(out, ElementsAre(10, 10, 30, 30, 30, -1, -1, -1));
                }),
      Each(IsEmpty()));
}

TEST_P(VariableBlocks, ReduceScattervGivesEachRankItsShare) {
  EXPECT_THAT(
      run_ranks(3, config(),
                [](Communicator& comm) {
                  const Counts counts{1000, 1, 0};
                  std::vector<float> in(1001);
                  std::iota(in.begin(), in.end(), 0.0F);
                  std::vector<float> out(counts[std::size_t(comm.rank())] + 1, -1);
                  comm.reduce_scatterv(in.data(), out.data(), counts, {}, DataType::f32, Op::sum);
                  EXPECT_EQ(out.back(), -1);
                  for (std::size_t i = 0; i + 1 < out.size(); ++i)
                    ASSERT_EQ(out[i], 3 * static_cast<float>(i + (comm.rank() == 1 ? 1000 : 0)));
                }),
      Each(IsEmpty()));
}

TEST_P(VariableBlocks, ScattervIsUndoneByGathervInPlace) {
  EXPECT_THAT(
      run_ranks(4, config(),
                [](Communicator& comm) {
                  constexpr int kRoot = 2;
                  const Counts counts{70'000, 0, 5, 1};
                  const std::size_t own = counts[std::size_t(comm.rank())];
                  const bool is_root = comm.rank() == kRoot;
                  std::vector<std::int32_t> all(is_root ? 70'006 : 0), mine(own);
                  std::iota(all.begin(), all.end(), 0);
                  const auto given = all;
                  std::int32_t* at = is_root ? all.data() + 70'000 : mine.data();
                  const auto list = is_root ? std::span(counts) : std::span<const std::size_t>();
                  comm.scatterv(all.data(), list, {}, at, own, DataType::int32, kRoot);
                  EXPECT_EQ(own == 0 ? 0 : at[own - 1], comm.rank() == 0   ? 69'999
                                                        : comm.rank() == 1 ? 0
                                                                           : 70'002 + comm.rank());
                  for (std::size_t i = 0; i < 70'000 && is_root; ++i) all[i] = -1;
                  comm.gatherv_async(at, own, all.data(), list, {}, DataType::int32, kRoot).wait();
                  EXPECT_EQ(all, given);
                }),
      Each(IsEmpty()));
}

void exchange_random_lengths(Communicator& comm) {
  const int size = comm.size();
  Counts to(size), from(size);
  std::vector<std::int32_t> in, expected;
  for (int peer = 0; peer < size; ++peer) {
    to[std::size_t(peer)] = length(comm.rank(), peer);
    from[std::size_t(peer)] = length(peer, comm.rank());
    for (std::size_t i = 0; i < to[std::size_t(peer)]; ++i)
      in.push_back(element(comm.rank(), peer, i));
    for (std::size_t i = 0; i < from[std::size_t(peer)]; ++i)
      expected.push_back(element(peer, comm.rank(), i));
  }
  std::vector<std::int32_t> out(expected.size());
  Work work;
  {
    const Counts to_be_forgotten = to;  // counts are read before the call returns
    work = comm.all_to_allv_async(in.data(), to_be_forgotten, {}, out.data(), from, {},
                                  DataType::int32);
  }
  work.wait();
  if (out != expected) throw Error(ErrorKind::internal, "wrong blocks");
}

TEST_P(VariableBlocks, AllToAllvMovesEachPairsBlock) {
  EXPECT_THAT(run_ranks(5, config(), exchange_random_lengths), Each(IsEmpty()));
}

TEST_P(VariableBlocks, AllToAllvInPlaceSwapsBlocksOfEqualLength) {
  EXPECT_THAT(run_ranks(3, config(),
                        [](Communicator& comm) {
                          Counts counts(3);
                          std::vector<std::int32_t> data, expected;
                          for (int peer = 0; peer < 3; ++peer) {
                            auto& count = counts[std::size_t(peer)];
                            count =
                                length(std::min(peer, comm.rank()), std::max(peer, comm.rank()));
                            for (std::size_t i = 0; i < count; ++i) {
                              data.push_back(element(comm.rank(), peer, i));
                              expected.push_back(element(peer, comm.rank(), i));
                            }
                          }
                          comm.all_to_allv(data.data(), counts, {}, data.data(), counts, {},
                                           DataType::int32);
                          EXPECT_EQ(data, expected);
                        }),
              Each(IsEmpty()));
}

TEST_P(VariableBlocks, WrongArgumentsAreRefusedAndTheCommunicatorGoesOn) {
  EXPECT_THAT(
      run_ranks(
          2, config(),
          [](Communicator& comm) {
            std::vector<float> a(100, 1), b(200);
            const Counts two{5, 5}, three{1, 1, 1}, huge{SIZE_MAX / 4, 5}, wrap{1, SIZE_MAX};
            const Counts half{SIZE_MAX / 10, SIZE_MAX / 10}, apart{0, 5}, same{0, 4}, none{};
            constexpr DataType kType = DataType::f32;
            const auto refused = [&](const char* words, auto&& call) {
              EXPECT_THAT(outcome_of(call), AllOf(StartsWith("usage: "), HasSubstr(words)));
            };
            const auto gather = [&](const void* in, void* out, const Counts& counts,
                                    const Counts& places) {
              return [&, in, out] { comm.all_gatherv(in, out, counts, places, kType); };
            };
            refused("all_gatherv: counts has 3 entries", gather(a.data(), b.data(), three, {}));
            refused("all_gatherv: counts has 0 entries", gather(a.data(), b.data(), none, {}));
            refused("displacements has 3 entries", gather(a.data(), b.data(), two, three));
            refused("counts[0]", gather(a.data(), b.data(), huge, none));
            refused("counts[1]", gather(a.data(), b.data(), wrap, none));
            refused("counts[1]", gather(a.data(), b.data(), half, none));
            refused("input is null", gather(nullptr, b.data(), two, none));
            refused("output is null", gather(a.data(), nullptr, two, none));
            refused("block 0 of the output and block 1 of the output overlap",
                    gather(a.data(), b.data(), two, same));
            refused("input == output + displacements[rank]",
                    gather(b.data() + 2, b.data(), two, none));
            refused("overlap",
                    [&] { comm.reduce_scatterv(b.data(), b.data() + 3, two, {}, kType, Op::sum); });
            refused("complex64", [&] {
              comm.reduce_scatterv(a.data(), b.data(), two, {}, DataType::complex64, Op::max);
            });
            const int me = comm.rank();
            refused("gatherv: count is 4, but counts",
                    [&] { comm.gatherv(a.data(), 4, b.data(), two, {}, kType, me); });
            refused("gatherv: root 2",
                    [&] { comm.gatherv(a.data(), 5, b.data(), two, {}, kType, 2); });
            refused("count: ",
                    [&] { comm.gatherv(a.data(), SIZE_MAX, b.data(), {}, {}, kType, 1 - me); });
            refused("scatterv: counts has 0 entries",
                    [&] { comm.scatterv(a.data(), {}, {}, b.data(), 5, kType, me); });
            refused("scatterv: output is null",
                    [&] { comm.scatterv(nullptr, {}, {}, nullptr, 5, kType, 1 - me); });
            refused("all_to_allv: input_counts has 3",
                    [&] { comm.all_to_allv(a.data(), three, {}, b.data(), two, {}, kType); });
            refused("output_displacements has 3",
                    [&] { comm.all_to_allv(a.data(), two, {}, b.data(), two, three, kType); });
            refused("of one length and in one place", [&] {
              comm.all_to_allv(b.data(), two, {}, b.data(),
                               comm.rank() == 0 ? Counts{5, 6} : Counts{6, 5}, {}, kType);
            });
            refused("block 1 of the input and block 0 of the output overlap",
                    [&] { comm.all_to_allv(b.data(), two, {}, b.data() + 7, two, {}, kType); });
            refused("negative", [&] {
              comm.all_gatherv(a.data(), b.data(), two, {}, kType,
                               {std::chrono::milliseconds(-1), {}});
            });
            // Blocks of input and output may alternate, and inputs that are only read may overlap.
            comm.all_to_allv(b.data(), two, Counts{0, 20}, b.data() + 10, two, Counts{0, 20},
                             kType);
            comm.all_to_allv(a.data(), two, Counts{0, 0}, b.data(), two, apart, kType);
            EXPECT_EQ(b[9], 1.0F);
            EXPECT_FALSE(comm.failure().has_value());
          }),
      Each(IsEmpty()));
}

TEST_P(VariableBlocks, LengthsThatDifferBetweenThePairAreReportedOnAllRanksWithBoth) {
  const Outcomes outcomes = run_ranks(3, config(), [](Communicator& comm) {
    std::vector<float> in(3000, 1), out(3000);
    Counts counts{500, 500, 500}, expected{500, 500, 500};
    if (comm.rank() == 2) expected[0] = 490;
    comm.barrier();
    comm.all_to_allv(in.data(), counts, {}, out.data(), expected, {}, DataType::f32);
    comm.barrier();
  });
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("mismatch: "), HasSubstr("all_to_allv(f32)"),
                                   HasSubstr("operation #1"),
                                   HasSubstr("rank 0 sends 500 elements to rank 2, which expects "
                                             "490 of it"))));
}

TEST_P(VariableBlocks, AGathervWhoseRootExpectsNothingIsAMismatchOnBothRanks) {
  for (const bool root_expects : {false, true}) {
    const Outcomes outcomes = run_ranks(2, config(), [&](Communicator& comm) {
      std::vector<float> in(100'000, 1), out(200'000);
      const std::size_t theirs = root_expects ? 100'000 : 0;
      const std::size_t count = comm.rank() == 0 ? 1 : 100'000 - theirs;
      comm.gatherv(in.data(), count, out.data(), Counts{1, theirs}, {}, DataType::f32, 0);
      comm.barrier();
    });
    EXPECT_THAT(outcomes, Each(AllOf(StartsWith("mismatch: "), HasSubstr("gatherv(f32, root 0)"),
                                     HasSubstr("rank 1 sends"), HasSubstr("100000"))));
  }
}

TEST_P(VariableBlocks, CountsThatAllMustKnowAreComparedEvenWhereTheirSumIsEqual) {
  const Outcomes outcomes = run_ranks(3, config(), [](Communicator& comm) {
    std::vector<float> in(10, 1), out(30);
    const Counts counts = comm.rank() == 1 ? Counts{3, 4, 5} : Counts{5, 4, 3};
    comm.all_gatherv(in.data(), out.data(), counts, {}, DataType::f32);
    comm.barrier();
  });
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("mismatch: "),
                                   HasSubstr("all_gatherv(12 x f32 in all, counts #"))));
}

TEST_P(VariableBlocks, AUniformCallAgainstAVariableOneIsAMismatch) {
  const Outcomes outcomes = run_ranks(2, config(), [](Communicator& comm) {
    std::vector<float> in(10, 1), out(10);
    if (comm.rank() == 0)
      comm.all_to_all(in.data(), out.data(), 5, DataType::f32);
    else
      comm.all_to_allv(in.data(), Counts{5, 5}, {}, out.data(), Counts{5, 5}, {}, DataType::f32);
    comm.barrier();
  });
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("mismatch: "), HasSubstr("all_to_all(5 x f32)"),
                                   HasSubstr("all_to_allv(f32)"))));
}

INSTANTIATE_TEST_SUITE_P(Transports, VariableBlocks, testing::Values("local", "shm", "tcp"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(Processes, ExchangeBlocksOfDifferentLengths) {
  const int port = unused_port();
  Processes ranks(4, [&](int rank) {
    set_environment(rank, 4, port);
    Communicator comm = Communicator::from_env(quick_config());
    for (int i = 0; i < 20; ++i) exchange_random_lengths(comm);
  });
  for (int rank = 0; rank < 4; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
}

TEST(VariableBlocks, ABlockToOneselfHasOneLengthInAllToAllV) {
  EXPECT_THAT(run_ranks(2, quick_config("local"),
                        [](Communicator& comm) {
                          std::vector<float> in(8, 1), out(8, 0);
                          const auto own = static_cast<std::size_t>(comm.rank());
                          std::vector<std::size_t> counts = {2, 2}, other = counts;
                          other[own] = 3;
                          EXPECT_THAT(outcome_of([&] {
                                        comm.all_to_allv(in.data(), counts, {}, out.data(), other,
                                                         {}, DataType::f32);
                                      }),
                                      AllOf(StartsWith("usage: all_to_allv"),
                                            HasSubstr("itself is 2, but"), HasSubstr("is 3")));
                          comm.all_to_allv(in.data(), counts, {}, out.data(), counts, {},
                                           DataType::f32);
                          EXPECT_THAT(std::span(out).first(4), Each(1.0F));
                        }),
              Each(IsEmpty()));
}

}  // namespace
}  // namespace tutti::test
