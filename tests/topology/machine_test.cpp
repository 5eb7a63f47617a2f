#include "topology/machine.h"

#include <gtest/gtest.h>

#include "machines.h"

namespace tutti {
namespace {

TEST(LinkBetween, RanksOnThreadsOfOneCoreIsThatCore) {
  EXPECT_EQ(link_between(big(), {0}, {1}), LinkKind::same_core);
  EXPECT_EQ(link_between(big(), {0, 1}, {0, 1}), LinkKind::same_core);
  EXPECT_EQ(link_between(described("core:1 pu:1"), {0}, {0}), LinkKind::same_core);
}

TEST(LinkBetween, CoresIsTheNearestCacheThatTheyShare) {
  const Machine cluster = described("pack:1 l3:1 l2:2 core:4 pu:1");
  EXPECT_EQ(link_between(cluster, {0}, {3}), LinkKind::shared_l2);
  EXPECT_EQ(link_between(cluster, {3}, {4}), LinkKind::shared_l3);
  EXPECT_EQ(link_between(big(), {0}, {2}), LinkKind::shared_l3);
}

TEST(LinkBetween, CoresThatShareNoCacheIsThePackage) {
  EXPECT_EQ(link_between(big(), {0}, {4}), LinkKind::same_package);
  EXPECT_EQ(link_between(described("pack:1 l2:2 core:1 pu:1"), {0}, {1}), LinkKind::same_package);
  EXPECT_EQ(link_between(described("pack:1 numa:2 core:2 pu:1"), {0}, {2}), LinkKind::same_package);
}

TEST(LinkBetween, PackagesIsTheFarthestAlsoWhereOneMemoryServesBoth) {
  EXPECT_EQ(link_between(big(), {0}, {8}), LinkKind::other_package);
  EXPECT_EQ(link_between(described("numa:1 pack:2 core:2 pu:1"), {0}, {2}),
            LinkKind::other_package);
}

TEST(LinkBetween, RanksThatRoamIsThatOfTheSmallestNodeAroundAllTheirCpus) {
  EXPECT_EQ(link_between(big(), {0, 1, 2, 3}, {0}), LinkKind::shared_l3);
  EXPECT_EQ(link_between(big(), {0, 4}, {0, 4}), LinkKind::same_package);
  EXPECT_EQ(link_between(big(), big().cpus(), big().cpus()), LinkKind::other_package);
}

TEST(LinkBetween, CpusThatTheMachineDoesNotKnowIsTheFarthest) {
  EXPECT_EQ(link_between(big(), {0}, {99}), LinkKind::other_package);
}

TEST(LinkBetween, IsTheSameInBothDirectionsAndNeverNearerForMoreCpus) {
  const Machine machine = big();
  for (int a = 0; a < 16; ++a)
    for (int b = 0; b < 16; ++b) {
      const LinkKind link = link_between(machine, {a}, {b});
      EXPECT_EQ(link, link_between(machine, {b}, {a}));
      for (int c = 0; c < 16; ++c) EXPECT_GE(link_between(machine, unite({a}, {c}), {b}), link);
    }
}

TEST(CoresWithin, AreThoseOfWhichAThreadMayBeUsed) {
  EXPECT_EQ(cores_within(big(), {1, 4, 5, 14}), (std::vector<Cpus>{{1}, {4, 5}, {14}}));
  EXPECT_TRUE(cores_within(big(), {}).empty());
}

}  // namespace
}  // namespace tutti
