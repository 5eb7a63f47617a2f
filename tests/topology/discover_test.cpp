#include "topology/discover.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <thread>

#include "machines.h"

namespace tutti {
namespace {

void expect_tree(const Machine& machine) {
  ASSERT_FALSE(machine.nodes.empty());
  EXPECT_EQ(machine.nodes[0].kind, NodeKind::machine);
  EXPECT_EQ(machine.nodes[0].parent, -1);
  Cpus in_cores;
  for (std::size_t i = 1; i < machine.nodes.size(); ++i) {
    const Node& node = machine.nodes[i];
    ASSERT_GE(node.parent, 0);
    ASSERT_LT(static_cast<std::size_t>(node.parent), i);
    EXPECT_TRUE(contains(machine.nodes[static_cast<std::size_t>(node.parent)].cpus, node.cpus));
    if (node.kind != NodeKind::core) continue;
    EXPECT_TRUE(intersect(in_cores, node.cpus).empty()) << "a cpu of two cores";
    in_cores = unite(in_cores, node.cpus);
  }
  EXPECT_EQ(in_cores, machine.cpus());
}

TEST(Describe, OneCoreHasOneCpu) {
  const Machine machine = described("core:1 pu:1");
  expect_tree(machine);
  EXPECT_EQ(machine.cpus(), Cpus{0});
  EXPECT_EQ(count(machine, NodeKind::core), 1);
}

TEST(Describe, TwoCoresHaveCachesOfTheirOwn) {
  const Machine machine = described("pack:1 l3:1(size=32MiB) l2:2(size=2MiB) core:1 pu:1");
  expect_tree(machine);
  EXPECT_EQ(count(machine, NodeKind::core), 2);
  ASSERT_EQ(count(machine, NodeKind::cache), 3);
  for (const Node& node : machine.nodes)
    if (node.kind == NodeKind::cache) {
      EXPECT_EQ(node.cpus.size(), node.level == 3 ? 2u : 1u);
      EXPECT_EQ(node.bytes, node.level == 3 ? 32u << 20 : 2u << 20);
    }
}

TEST(Describe, TwoPackagesWithTwoThreadsACore) {
  const Machine machine = described("pack:2 l3:2 l2:4 core:1 pu:2");
  expect_tree(machine);
  EXPECT_EQ(count(machine, NodeKind::package), 2);
  EXPECT_EQ(count(machine, NodeKind::core), 16);
  EXPECT_EQ(machine.cpus().size(), 32u);
  EXPECT_EQ(cores_within(machine, machine.cpus()).front(), (Cpus{0, 1}));
}

TEST(Describe, NumaNodesHoldTheCachesThatAreNearThem) {
  const Machine machine = described("pack:2 numa:2(memory=1GiB) l3:1 core:2 pu:1");
  expect_tree(machine);
  EXPECT_EQ(count(machine, NodeKind::numa), 4);
  for (const Node& node : machine.nodes) {
    if (node.kind == NodeKind::numa) {
      EXPECT_EQ(node.bytes, 1u << 30);
      EXPECT_EQ(node.cpus.size(), 2u);
    }
    if (node.kind == NodeKind::cache) {
      EXPECT_EQ(machine.nodes[static_cast<std::size_t>(node.parent)].kind, NodeKind::numa);
    }
  }
}

TEST(Describe, TwoMemoriesBesideEachOtherDoNotHoldEachOther) {
  const Machine machine = described("pack:1 [numa(memory=8GiB)] [numa(memory=1GiB)] core:2 pu:1");
  expect_tree(machine);
  ASSERT_EQ(count(machine, NodeKind::numa), 2);
  for (const Node& node : machine.nodes)
    if (node.kind == NodeKind::numa) {
      EXPECT_EQ(machine.nodes[static_cast<std::size_t>(node.parent)].kind, NodeKind::package);
    }
}

TEST(Describe, AWrongTextIsNoMachine) {
  EXPECT_FALSE(describe("pack:x"));
  EXPECT_FALSE(describe("nonsense:2"));
}

TEST(PlainMachine, IsOnePackageWithACoreForEachCpu) {
  const Machine machine = plain_machine({0, 1, 5});
  expect_tree(machine);
  EXPECT_EQ(count(machine, NodeKind::package), 1);
  EXPECT_EQ(count(machine, NodeKind::core), 3);
  EXPECT_EQ(link_between(machine, {0}, {5}), LinkKind::same_package);
  EXPECT_EQ(link_between(machine, {5}, {5}), LinkKind::same_core);
}

TEST(Discover, FindsATreeOfAllCpusThatThisProcessMayUse) {
  const Machine machine = discover();
  expect_tree(machine);
  EXPECT_EQ(machine.allowed, affinity());
  EXPECT_TRUE(contains(machine.cpus(), machine.allowed));
  EXPECT_GE(count(machine, NodeKind::package), 1);
  EXPECT_FALSE(machine.described);
}

TEST(Discover, ANarrowedMaskNarrowsWhatIsAllowedAndNotTheMachine) {
  const Machine whole = discover();
  const Cpus one{affinity().back()};
  Machine narrowed;
  std::thread([&] {
    ASSERT_TRUE(bind_thread(one));
    narrowed = discover();
  }).join();
  EXPECT_EQ(narrowed.allowed, one);
  EXPECT_EQ(narrowed.cpus(), whole.cpus());
  EXPECT_EQ(affinity(), whole.allowed) << "of another thread";
}

TEST(Discover, HeedsADescriptionAndSaysThatItIsOne) {
  ASSERT_EQ(setenv("HWLOC_SYNTHETIC", "pack:2 core:4 pu:1", 1), 0);
  const Machine machine = discover();
  ASSERT_EQ(unsetenv("HWLOC_SYNTHETIC"), 0);
  EXPECT_TRUE(machine.described);
  EXPECT_EQ(machine.allowed.size(), 8u);
}

}  // namespace
}  // namespace tutti
