#include "topology/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tutti/error.hpp>

#include "machines.h"
#include "tests/common/errors.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::string reason_not_to(const Machine& machine, int ranks) {
  const Placement placement = place(machine, ranks, "auto");
  EXPECT_THAT(placement.ranks, IsEmpty());
  return placement.reason;
}

TEST(Placement, TwoRanksOnTwoCoresGetOneEach) {
  const Machine machine = described("pack:1 l3:1 l2:2 core:1 pu:1");
  EXPECT_EQ(place(machine, 2, "auto").ranks, (std::vector<Cpus>{{0}, {1}}));
}

TEST(Placement, RanksShareAllCoresWithTheirThreadsAndNeighboursStayTogether) {
  EXPECT_EQ(
      place(big(), 8, "auto").ranks,
      (std::vector<Cpus>{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(place(big(), 2, "auto").ranks,
            (std::vector<Cpus>{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}}));
}

TEST(Placement, NeighboursFollowTheMachineAndNotTheNumbersOfItsCpus) {
  // Many servers number their cpus like this: even ones on the first package, odd ones on the
  // second.
  const Machine machine = described("pack:2(indexes=0,1) core:2 pu:1(indexes=0,2,1,3)");
  EXPECT_EQ(place(machine, 2, "auto").ranks, (std::vector<Cpus>{{0, 2}, {1, 3}}));
}

TEST(Placement, GivesEachCoreToOneRankAndEachRankAFairShareForAllNumbers) {
  for (const char* text : {"core:1 pu:1", "pack:1 l2:2 core:1 pu:1", "pack:3 core:5 pu:2",
                           "pack:2 [numa] l3:4 core:8 pu:2"}) {
    const Machine machine = described(text);
    const auto cores = cores_within(machine, machine.cpus());
    for (std::size_t ranks = 2; ranks <= cores.size(); ++ranks) {
      const auto placed = place(machine, static_cast<int>(ranks), "auto").ranks;
      ASSERT_EQ(placed.size(), ranks);
      Cpus given;
      for (const Cpus& cpus : placed) {
        const std::size_t share = cores_within(machine, cpus).size();
        EXPECT_GE(share, cores.size() / ranks);
        EXPECT_LE(share, (cores.size() + ranks - 1) / ranks);
        EXPECT_THAT(intersect(given, cpus), IsEmpty());
        given = unite(given, cpus);
      }
      EXPECT_EQ(given, machine.cpus());
    }
  }
}

TEST(Placement, RanksThatOutnumberTheCoresAreNotBound) {
  EXPECT_THAT(reason_not_to(described("core:1 pu:1"), 2), HasSubstr("more than the 1 cores"));
  EXPECT_THAT(reason_not_to(described("core:2 pu:2"), 3), HasSubstr("more than the 2 cores"));
}

TEST(Placement, LeavesAProcessAloneThatSomebodyHasBoundAlready) {
  Machine machine = big();
  machine.allowed = {0, 1, 2, 3};
  EXPECT_THAT(reason_not_to(machine, 2), HasSubstr("bound already, to cpus 0-3"));
  machine.limits.cpus = Cpus{0, 1, 2, 3};  // the control group allows no more than that
  EXPECT_EQ(place(machine, 2, "auto").ranks, (std::vector<Cpus>{{0, 1}, {2, 3}}));
}

TEST(Placement, LeavesAloneWhoSharesTheCoresWithOthers) {
  Machine machine = big();
  machine.limits.cpu_quota = 2.5;
  EXPECT_THAT(reason_not_to(machine, 2), HasSubstr("quota of 2.5 cpus"));
  machine.limits.cpu_quota = 8;
  EXPECT_EQ(place(machine, 2, "auto").ranks.size(), 2u);
}

TEST(Placement, BindsNobodyByTheDescriptionOfAnotherMachine) {
  EXPECT_THAT(reason_not_to(*describe("core:2 pu:1"), 2), HasSubstr("another machine"));
}

TEST(Placement, OneRankAndNoneAskedForAreNotBound) {
  EXPECT_THAT(reason_not_to(big(), 1), HasSubstr("one rank"));
  EXPECT_THAT(place(big(), 2, "none").ranks, IsEmpty());
}

TEST(Placement, AListIsTakenAsItIsWhereItSuffices) {
  EXPECT_EQ(place(big(), 2, "4,5").ranks, (std::vector<Cpus>{{4}, {5}}));
  EXPECT_EQ(place(big(), 2, "0-2+8,1,7").ranks, (std::vector<Cpus>{{0, 1, 2, 8}, {1}}));
  EXPECT_THAT(usage_error([] { place(big(), 3, "4,5"); }),
              AllOf(HasSubstr("for 2 ranks"), HasSubstr("there are 3")));
  EXPECT_THAT(usage_error([] { place(big(), 2, "cores"); }), HasSubstr("'cores'"));
}

TEST(Placement, CpusThatThisProcessMayNotUseAreRefusedWithTheirRank) {
  Machine machine = big();
  machine.allowed = {0, 1};
  check_usable(machine, {1}, 0);
  EXPECT_THAT(usage_error([&] {
                check_usable(machine, {1, 2}, 3);
              }),
              AllOf(HasSubstr("rank 3"), HasSubstr("cpus 1-2"), HasSubstr("0-1 alone")));
}

}  // namespace
}  // namespace tutti
