// Tests that algorithms are right, and stay within groups, for whatever ranks a group has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "collectives/schedule/renumbering.h"
#include "common/random.h"
#include "support.h"

namespace tutti::testing {
namespace {

using collectives::Numbering;
using collectives::Renumbering;

void prove_all(const std::vector<int>& groups, int root, const VerifyOptions& options,
               const std::vector<int>& places = {}) {
  const auto ranks = static_cast<int>(groups.size());
  for (const Algorithm& algorithm : algorithms())
    for (const Collective what : all_collectives()) {
      if (algorithm.numbering == Numbering::ranks || !algorithm.knows(what, ranks)) continue;
      const auto schedules =
          plan_all(algorithm, what, ranks, root * collectives::has_root(what), groups, places);
      const Verdict verdict = verify(schedules, options);
      ASSERT_TRUE(verdict.ok) << algorithm.name << " " << to_string(what) << ", root " << root
                              << ", groups " << ::testing::PrintToString(groups) << ", places "
                              << ::testing::PrintToString(places)
                              << (options.in_place ? ", in place: " : ": ") << verdict.why;
    }
}

TEST(Renumbering, EveryAlgorithmIsProvedForEveryGroupingOfUpToFiveRanksAndEveryRoot) {
  for (int ranks = 2; ranks <= 5; ++ranks) {
    std::vector<int> groups(static_cast<std::size_t>(ranks));
    do {
      for (int root = 0; root < ranks; ++root)
        for (const bool in_place : {false, true})
          ASSERT_NO_FATAL_FAILURE(prove_all(groups, root, {.in_place = in_place}));
    } while (next_grouping(groups));
  }
}

TEST(Renumbering, EveryAlgorithmIsProvedForRandomGroupingsOfUpToFortyRanks) {
  SeededRandom random(7);
  for (int trial = 0; trial < 60; ++trial) {
    const int ranks = 6 + static_cast<int>(random.next() % 35);
    const auto most = 2 + random.next() % static_cast<unsigned>(ranks / 2);
    std::vector<int> groups;  // which may have any numbers
    for (int rank = 0; rank < ranks; ++rank)
      groups.push_back(static_cast<int>(random.next() % most) * 7 - 3);
    ASSERT_NO_FATAL_FAILURE(prove_all(groups, static_cast<int>(random.next() % unsigned(ranks)),
                                      {.pieces = 2, .operations = 2, .in_place = trial % 2 == 0}));
  }
}

TEST(Renumbering, EveryAlgorithmIsProvedForRandomPlacesInRandomGroups) {
  SeededRandom random(11);
  for (int trial = 0; trial < 60; ++trial) {
    const int ranks = 2 + static_cast<int>(random.next() % 20);
    const auto machines = 1 + random.next() % 4;
    std::vector<int> groups, places;
    for (int rank = 0; rank < ranks; ++rank) {
      groups.push_back(static_cast<int>(random.next() % machines));
      places.push_back(static_cast<int>(random.next() % 8));
    }
    ASSERT_NO_FATAL_FAILURE(prove_all(groups, static_cast<int>(random.next() % unsigned(ranks)),
                                      {.pieces = 2, .operations = 2, .in_place = trial % 2 == 0},
                                      places));
  }
}

int chunks_across_of_all(const Algorithm& algorithm, Collective what, int root,
                         const std::vector<int>& groups) {
  int chunks = 0;
  for (const Schedule& schedule :
       plan_all(algorithm, what, static_cast<int>(groups.size()), root, groups))
    chunks += chunks_across(schedule, groups);
  return chunks;
}

// The blocks of several ranks that make one message cannot be renumbered.
bool sends_blocks_together(const Algorithm& algorithm, Collective what, int ranks) {
  return !Renumbering::possible(algorithm.plan({what, 0, ranks}));
}

TEST(Renumbering, NoOrderOfTheRanksCrossesBetweenEqualGroupsMoreOftenThanTheirNumbersDo) {
  SeededRandom random(3);
  for (const int each : {2, 3, 4, 8})
    for (const int count : {2, 3, 4}) {
      const int ranks = each * count;
      std::vector<int> groups;
      for (int rank = 0; rank < ranks; ++rank) groups.push_back(rank / each);
      for (const Algorithm& algorithm : algorithms())
        for (const Collective what : all_collectives()) {
          if (algorithm.numbering == Numbering::ranks || !algorithm.knows(what, ranks) ||
              sends_blocks_together(algorithm, what, ranks))
            continue;
          std::vector<int> dealt = groups;
          const int least = chunks_across_of_all(algorithm, what, 0, groups);
          for (int trial = 0; trial < 5; ++trial) {
            for (std::size_t left = dealt.size(); left > 1; --left)
              std::swap(dealt[left - 1], dealt[random.next() % left]);
            const int root =
                collectives::has_root(what) ? static_cast<int>(random.next() % unsigned(ranks)) : 0;
            ASSERT_EQ(chunks_across_of_all(algorithm, what, root, dealt), least)
                << algorithm.name << " " << to_string(what) << ", root " << root << ", groups "
                << ::testing::PrintToString(dealt);
          }
        }
    }
}

TEST(Renumbering, ARingLeavesEachMachineOnceWhereRanksAreDealtOutByTurns) {
  const std::vector<int> groups{0, 1, 0, 1, 0, 1, 0, 1};
  int crossing = 0;
  for (const Schedule& schedule :
       plan_all(algorithm_named("ring"), Collective::all_reduce, 8, 0, groups))
    crossing += chunks_across(schedule, groups) > 0 ? 1 : 0;
  EXPECT_EQ(crossing, 2) << "one rank of each machine";
}

/// Returns the rank to which each rank sends first around the ring, from `first` on.
std::vector<int> order_of_ring(int first, Collective what, const std::vector<int>& groups,
                               const std::vector<int>& places) {
  const auto ranks = static_cast<int>(places.size());
  const int root = collectives::has_root(what) ? first : 0;
  const auto schedules = plan_all(algorithm_named("ring"), what, ranks, root, groups, places);
  std::vector<int> order{first};
  while (static_cast<int>(order.size()) < ranks) {
    int next = -1;
    for (const Step& step : schedules[static_cast<std::size_t>(order.back())].lanes.front().steps)
      for (const Operand& operand : step.out)
        if (operand.place == Place::peer && next < 0) next = operand.index;
    order.push_back(next);
  }
  return order;
}

TEST(Renumbering, ARingPassesByTheRanksOfAMachineInTheOrderOfTheirPlaces) {
  using ::testing::ElementsAre;
  const std::vector<int> places{4, 1, 3, 0, 2};
  EXPECT_THAT(order_of_ring(0, Collective::all_gather, {}, places), ElementsAre(0, 3, 1, 4, 2));
  EXPECT_THAT(order_of_ring(1, Collective::broadcast, {}, places), ElementsAre(1, 4, 2, 0, 3))
      << "from the root on";
  EXPECT_THAT(order_of_ring(0, Collective::all_gather, {}, {0, 1, 0, 1}), ElementsAre(0, 2, 1, 3))
      << "two packages, among which a launcher has dealt out the ranks by turns";
  EXPECT_THAT(order_of_ring(0, Collective::all_gather, {0, 1, 0, 1, 0, 1}, {2, 7, 1, 5, 0, 6}),
              ElementsAre(0, 4, 2, 1, 3, 5))
      << "each machine from its first rank on";
}

// Each rank halves within its machine first, so that a quarter of the buffer is left to exchange
// between four machines of four ranks: twice three of sixteen chunks.
TEST(Renumbering, HalvingLeavesTheLeastToBeExchangedBetweenMachines) {
  for (const std::vector<int>& groups :
       {std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3},
        std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3},
        std::vector<int>{3, 1, 2, 0, 0, 1, 2, 3, 0, 0, 2, 3, 1, 1, 2, 3}})
    for (const Schedule& schedule :
         plan_all(algorithm_named("halving_doubling"), Collective::all_reduce, 16, 0, groups))
      EXPECT_EQ(chunks_across(schedule, groups), 6) << "rank " << schedule.rank;
}

TEST(Renumbering, RanksKeepTheirNumbersWhereGroupsSayNothing) {
  const auto unchanged = [](std::vector<int> groups, int root = 0) {
    const Collective what = root > 0 ? Collective::broadcast : Collective::all_reduce;
    const PlanRequest request{what, 0, 4, root, std::move(groups)};
    return !Renumbering(request, Numbering::near).needed();
  };
  EXPECT_TRUE(unchanged({}));
  EXPECT_TRUE(unchanged({5, 5, 5, 5}));
  EXPECT_TRUE(unchanged({3, 1, 2, 0})) << "a machine for each rank";
  EXPECT_TRUE(unchanged({1, 1, 0, 0}));
  EXPECT_FALSE(unchanged({0, 1, 0, 1}));
  const auto placed = [](Numbering numbering, std::vector<int> places) {
    const PlanRequest request{Collective::all_reduce, 0, 4, 0, {}, 0, std::move(places)};
    return Renumbering(request, numbering).needed();
  };
  EXPECT_TRUE(placed(Numbering::near, {0, 1, 0, 1}));
  EXPECT_FALSE(placed(Numbering::near, {0, 1, 1, 2}));
  EXPECT_FALSE(placed(Numbering::far, {0, 1, 0, 1}));
  EXPECT_FALSE(placed(Numbering::ranks, {0, 1, 0, 1}));
  EXPECT_FALSE(unchanged({0, 0, 1, 1}, 2)) << "the root's machine comes first";
}

// A planner that looked at all ranks for each step would take minutes here.
TEST(Renumbering, ARingOfManyRanksIsPlannedInRoundsWhateverItsOrder) {
  constexpr int kRanks = 20'000;
  PlanRequest request{.what = Collective::all_reduce, .rank = 4'711, .ranks = kRanks};
  for (int rank = 0; rank < kRanks; ++rank) request.groups.push_back(rank % 16);
  const collectives::Rounds rounds = algorithm_named("ring").plan_in_rounds(request);
  ASSERT_EQ(rounds.written.lanes.size(), 2u);
  EXPECT_EQ(rounds.written.lanes[0].steps.size() + rounds.written.lanes[1].steps.size(), 6u);
  EXPECT_EQ(rounds.written.lanes[0].steps.front().out, std::vector<Operand>{peer(4'711 + 16)});
}

}  // namespace
}  // namespace tutti::testing
