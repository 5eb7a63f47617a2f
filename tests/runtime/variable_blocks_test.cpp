// Tests of all_gatherv, reduce_scatterv, gatherv, scatterv and all_to_allv as a program uses them:
// correct calls, calls that are wrong by themselves, and calls that differ between ranks.
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

// Returns element i of the block that rank `from` has for rank `to`.
std::int32_t element(int from, int to, std::size_t i) {
  return from * 1'000'000 + to * 100'000 + static_cast<std::int32_t>(i);
}
std::size_t length(int from, int to) {
  return static_cast<std::size_t>(from * 700 + to * 13 + 7) % 1500;
}

/// The numbers of ranks include one rank, where a list has one entry and its one block may still
/// lie anywhere.
constexpr int kSizes[] = {1, 2, 3, 5};

/// Runs `body` on each of these numbers of ranks.
void on_any_number_of_ranks(const Config& config, const std::function<void(Communicator&)>& body) {
  for (const int size : kSizes) {
    SCOPED_TRACE(size);
    EXPECT_THAT(run_ranks(size, config, body), Each(IsEmpty()));
  }
}

/// The places of one block for each rank, of 4, 5, … elements. The block of rank 0 is the last, and
/// there is a gap before each.
struct Places {
  explicit Places(int size) {
    for (int rank = size - 1; rank >= 0; --rank) {
      const std::size_t count = 4 + static_cast<std::size_t>(rank);
      counts.insert(counts.begin(), count);
      displacements.insert(displacements.begin(), elements + 3);
      elements += 3 + count;
    }
  }
  /// Returns the contents of a buffer: a block holds its rank's number plus one, and `gap` lies
  /// between blocks.
  std::vector<std::int32_t> filled(std::int32_t gap) const {
    std::vector<std::int32_t> all(elements, gap);
    for (std::size_t rank = 0; rank < counts.size(); ++rank)
      std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(displacements[rank]), counts[rank],
                  static_cast<std::int32_t>(rank) + 1);
    return all;
  }

  Counts counts, displacements;
  std::size_t elements = 0;
};

TEST_P(VariableBlocks, AllGathervPutsBlocksWhereDisplacementsSay) {
  on_any_number_of_ranks(config(), [](Communicator& comm) {
    const Places places(comm.size());
    const auto rank = static_cast<std::size_t>(comm.rank());
    const std::vector<std::int32_t> in(places.counts[rank], comm.rank() + 1);
    std::vector<std::int32_t> out(places.elements, -1);
    comm.all_gatherv(in.data(), out.data(), places.counts, places.displacements, DataType::int32);
    EXPECT_EQ(out, places.filled(-1));
    out.assign(places.elements, -1);
    comm.all_gatherv_async(in.data(), out.data(), places.counts, {}, DataType::int32).wait();
    std::vector<std::int32_t> expected;
    for (int peer = 0; peer < comm.size(); ++peer)
      expected.insert(expected.end(), places.counts[std::size_t(peer)], peer + 1);
    expected.resize(places.elements, -1);
    EXPECT_EQ(out, expected);
  });
}

TEST_P(VariableBlocks, ABlockInPlaceIsWhereItsDisplacementSays) {
  on_any_number_of_ranks(config(), [](Communicator& comm) {
    const Places places(comm.size());
    const auto& [counts, displacements, elements] = places;
    const auto rank = static_cast<std::size_t>(comm.rank());
    constexpr DataType kType = DataType::int32;
    std::vector<std::int32_t> all(elements, -1);
    std::int32_t* const mine = all.data() + displacements[rank];
    std::fill_n(mine, counts[rank], comm.rank() + 1);
    comm.all_gatherv(mine, all.data(), counts, displacements, kType);
    EXPECT_EQ(all, places.filled(-1));
    comm.reduce_scatterv(all.data(), mine, counts, displacements, kType, Op::sum);
    EXPECT_THAT(std::span(mine, counts[rank]), AllAre((comm.rank() + 1) * comm.size()));
    if (comm.rank() == 0) {
      comm.gatherv(mine, counts[0], all.data(), counts, displacements, kType, 0);
      comm.scatterv(all.data(), counts, displacements, mine, counts[0], kType, 0);
    } else {
      comm.gatherv(mine, counts[rank], nullptr, {}, {}, kType, 0);
      comm.scatterv(nullptr, {}, {}, mine, counts[rank], kType, 0);
    }
    EXPECT_THAT(std::span(mine, counts[rank]), AllAre((comm.rank() + 1) * comm.size()));
    const Counts same(counts.size(), 2);
    all = places.filled(-1);
    comm.all_to_allv(all.data(), same, displacements, all.data(), same, displacements, kType);
    for (const std::size_t place : displacements)
      EXPECT_THAT(std::span(all).subspan(place, 2), AllAre(comm.rank() + 1));
  });
}

// One rank is tested too: of 100 000 elements shifted onto themselves by 1000, thousands were
// wrong.
TEST_P(VariableBlocks, BlocksThatOverlapWithoutBeingInPlaceAreRefused) {
  on_any_number_of_ranks(config(), [](Communicator& comm) {
    constexpr std::size_t kCount = 100'000, kShift = 1000;
    const auto size = static_cast<std::size_t>(comm.size());
    const Counts counts(size, kCount);
    Counts places(size), shifted(size);
    for (std::size_t peer = 0; peer < size; ++peer) {
      places[peer] = peer * (kCount + kShift);
      shifted[peer] = places[peer] + kShift;
    }
    std::vector<std::int32_t> data(size * (kCount + kShift));
    constexpr DataType kType = DataType::int32;
    const auto refused = [&](const auto& call) {
      EXPECT_THAT(outcome_of(call), AllOf(StartsWith("usage: "), HasSubstr("overlap")));
    };
    std::int32_t* const mine = data.data() + places[std::size_t(comm.rank())];
    refused([&] { comm.all_gatherv(mine, data.data(), counts, shifted, kType); });
    refused([&] { comm.reduce_scatterv(data.data(), mine, counts, shifted, kType, Op::sum); });
    refused([&] { comm.gatherv(mine, kCount, data.data(), counts, shifted, kType, comm.rank()); });
    refused([&] { comm.scatterv(data.data(), counts, shifted, mine, kCount, kType, comm.rank()); });
    EXPECT_THAT(outcome_of([&] {
                  comm.all_to_allv(data.data(), counts, places, data.data(), counts, shifted,
                                   kType);
                }),
                AllOf(StartsWith("usage: "), HasSubstr("of one length and in one place")));
    EXPECT_FALSE(comm.failure().has_value());
  });
}

TEST_P(VariableBlocks, ReduceScattervGivesEachRankItsShare) {
  on_any_number_of_ranks(config(), [](Communicator& comm) {
    Counts counts(static_cast<std::size_t>(comm.size()), 0);
    counts[0] = 1000;
    if (comm.size() > 1) counts[1] = 1;
    std::vector<float> in(1001);
    std::iota(in.begin(), in.end(), 0.0F);
    std::vector<float> out(counts[std::size_t(comm.rank())] + 1, -1);
    comm.reduce_scatterv(in.data(), out.data(), counts, {}, DataType::f32, Op::sum);
    EXPECT_EQ(out.back(), -1);
    for (std::size_t i = 0; i + 1 < out.size(); ++i)
      ASSERT_EQ(out[i], static_cast<float>(comm.size()) *
                            static_cast<float>(i + (comm.rank() == 1 ? 1000 : 0)));
  });
}

TEST_P(VariableBlocks, ScattervIsUndoneByGathervInPlace) {
  on_any_number_of_ranks(config(), [](Communicator& comm) {
    const int root = comm.size() / 2;
    Counts counts(static_cast<std::size_t>(comm.size()), 5);
    counts[0] = 70'000;
    if (comm.size() > 2) counts[1] = 0;
    const auto rank = static_cast<std::size_t>(comm.rank());
    const auto first = [&](std::size_t peer) {
      return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(peer),
                             std::size_t{0});
    };
    const std::size_t own = counts[rank], begin = first(rank);
    const bool is_root = comm.rank() == root;
    std::vector<std::int32_t> all(is_root ? first(counts.size()) : 0), mine(own);
    std::iota(all.begin(), all.end(), 0);
    const auto given = all;
    std::int32_t* at = is_root ? all.data() + begin : mine.data();
    const auto list = is_root ? std::span(counts) : std::span<const std::size_t>();
    comm.scatterv(all.data(), list, {}, at, own, DataType::int32, root);
    EXPECT_EQ(own == 0 ? 0 : at[own - 1],
              own == 0 ? 0 : static_cast<std::int32_t>(begin + own - 1));
    // The blocks of the other ranks come back.
    for (std::size_t i = 0; i < all.size(); ++i)
      if (i < begin || i >= begin + own) all[i] = -1;
    comm.gatherv_async(at, own, all.data(), list, {}, DataType::int32, root).wait();
    EXPECT_EQ(all, given);
  });
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
    // The counts are read before the call returns.
    const Counts to_be_forgotten = to;
    work = comm.all_to_allv_async(in.data(), to_be_forgotten, {}, out.data(), from, {},
                                  DataType::int32);
  }
  work.wait();
  if (out != expected) throw Error(ErrorKind::internal, "wrong blocks");
}

TEST_P(VariableBlocks, AllToAllvMovesEachPairsBlock) {
  on_any_number_of_ranks(config(), exchange_random_lengths);
}

TEST_P(VariableBlocks, AllToAllvInPlaceSwapsBlocksOfEqualLength) {
  on_any_number_of_ranks(config(), [](Communicator& comm) {
    Counts counts(static_cast<std::size_t>(comm.size()));
    std::vector<std::int32_t> data, expected;
    for (int peer = 0; peer < comm.size(); ++peer) {
      auto& count = counts[std::size_t(peer)];
      count = length(std::min(peer, comm.rank()), std::max(peer, comm.rank()));
      for (std::size_t i = 0; i < count; ++i) {
        data.push_back(element(comm.rank(), peer, i));
        expected.push_back(element(peer, comm.rank(), i));
      }
    }
    comm.all_to_allv(data.data(), counts, {}, data.data(), counts, {}, DataType::int32);
    EXPECT_EQ(data, expected);
  });
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
                          EXPECT_THAT(std::span(out).first(4), AllAre(1.0F));
                        }),
              Each(IsEmpty()));
}

}  // namespace
}  // namespace tutti::test
