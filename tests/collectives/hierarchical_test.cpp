// Tests hierarchical algorithms with all groupings of a few ranks and with random groupings of
// more.
#include <gtest/gtest.h>

#include "common/random.h"
#include "support.h"

namespace tutti::testing {
namespace {

std::vector<Schedule> plan_grouped(Collective what, const std::vector<int>& groups, int root) {
  return plan_all(algorithm_named("hierarchical"), what, static_cast<int>(groups.size()), root,
                  groups);
}

void prove(const std::vector<int>& groups, int root) {
  for (const Collective what : all_collectives()) {
    if (!algorithm_named("hierarchical").knows(what, int(groups.size()))) continue;
    const auto schedules = plan_grouped(what, groups, root * collectives::has_root(what));
    for (const bool in_place : {false, true}) {
      const Verdict verdict = verify(schedules, {.in_place = in_place});
      std::string text;
      for (const int group : groups) text += std::to_string(group) + " ";
      ASSERT_TRUE(verdict.ok) << to_string(what) << ", groups " << text << ": " << verdict.why;
    }
  }
}

TEST(Hierarchical, IsProvedForEveryGroupingOfUpToSixRanks) {
  for (int ranks = 2; ranks <= 6; ++ranks) {
    std::vector<int> groups(ranks, 0);
    do {
      ASSERT_NO_FATAL_FAILURE(prove(groups, ranks / 2));
    } while (next_grouping(groups));
  }
}

TEST(Hierarchical, IsProvedForRandomGroupingsOfUpToFortyRanks) {
  SeededRandom random(4);
  for (int trial = 0; trial < 60; ++trial) {
    const int ranks = 2 + static_cast<int>(random.next() % 39);
    const auto most = 1 + random.next() % static_cast<unsigned>(ranks);
    std::vector<int> groups;
    for (int rank = 0; rank < ranks; ++rank)
      // Groups may have any numbers.
      groups.push_back(static_cast<int>(random.next() % most) * 7 - 3);
    ASSERT_NO_FATAL_FAILURE(prove(groups, static_cast<int>(random.next() % unsigned(ranks))));
  }
}

TEST(Hierarchical, EqualGroupsArePlannedLikeTheSameGroupsInAList) {
  const Algorithm& hierarchical = algorithm_named("hierarchical");
  for (const Collective what : all_collectives())
    for (int ranks = 2; ranks <= 26; ++ranks) {
      if (!hierarchical.knows(what, ranks)) continue;
      for (int size = 1; size <= ranks + 1; ++size)
        for (int rank = 0; rank < ranks; ++rank) {
          PlanRequest listed{what, rank, ranks, ranks / 3 * collectives::has_root(what)};
          PlanRequest equal = listed;
          for (int each = 0; each < ranks; ++each) listed.groups.push_back(each / size);
          equal.group_size = size;
          ASSERT_EQ(hierarchical.plan(listed), hierarchical.plan(equal))
              << to_string(what) << ", rank " << rank << " of " << ranks << ", groups of " << size;
        }
    }
}

// A planner that looks at all ranks for each of them would take minutes here.
TEST(Hierarchical, EveryOneOfAHundredThousandRanksIsPlannedFromAFewNumbers) {
  constexpr int kRanks = 100'000;
  std::size_t sends = 0, receives = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Schedule schedule =
        algorithm_named("hierarchical")
            .plan({.what = Collective::all_reduce, .rank = rank, .ranks = kRanks, .group_size = 8});
    for (const Lane& lane : schedule.lanes)
      for (const Step& step : lane.steps) {
        for (const Operand& from : step.in) receives += from.place == Place::peer;
        for (const Operand& to : step.out) sends += to.place == Place::peer;
      }
  }
  EXPECT_EQ(sends, receives);
  // In each of 12 500 groups 8 chunks go around a ring of 8 twice, and up and down 8 trees.
  EXPECT_EQ(sends, 2u * 8 * 7 * 12'500 + 2u * 8 * 12'499);
}

TEST(Hierarchical, EachValueGoesBetweenTwoGroupsOnceEachWay) {
  const std::vector<int> groups{0, 0, 0, 0, 1, 1, 1, 1};
  for (const Schedule& schedule : plan_grouped(Collective::all_reduce, groups, 0))
    EXPECT_EQ(chunks_across(schedule, groups), 1) << "of " << schedule.chunks << " a quarter";
  for (const Schedule& schedule : plan_grouped(Collective::all_gather, groups, 0))
    EXPECT_EQ(chunks_across(schedule, groups), 1) << "its own block";
  for (const Schedule& schedule : plan_grouped(Collective::reduce_scatter, groups, 0))
    EXPECT_EQ(chunks_across(schedule, groups), 1) << "its group's sum for one of the others";
  int across = 0;
  for (const Schedule& schedule : plan_grouped(Collective::broadcast, groups, 5))
    across += chunks_across(schedule, groups);
  EXPECT_EQ(across, 1);
}

}  // namespace
}  // namespace tutti::testing
