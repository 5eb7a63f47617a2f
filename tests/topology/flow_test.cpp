#include "topology/search/flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include <tutti/error.hpp>

#include "topology/search/gpu_network.h"

namespace tutti {
namespace {

using testing::HasSubstr;

/// A network of a few nodes with random capacities, of which every cut can be tried.
GpuNetwork random_network(std::mt19937& random, int gpus, int nodes) {
  GpuNetwork network{gpus, gpus, nodes, {}};
  for (int from = 0; from < nodes; ++from)
    for (int to = 0; to < nodes; ++to)
      if (from != to && random() % 3 != 0)
        network.edges.push_back({from, to, static_cast<std::int64_t>(random() % 10)});
  return network;
}

std::int64_t leaving(const GpuNetwork& network, unsigned set) {
  std::int64_t sum = 0;
  for (const GpuNetwork::Edge& edge : network.edges)
    if ((set >> edge.from & 1) != 0 && (set >> edge.to & 1) == 0) sum += edge.mb_per_s;
  return sum;
}

TEST(FlowNetwork, CarriesAsMuchAsTheSmallestOfAllCuts) {
  std::mt19937 random(1);
  StepBudget budget("this", 1 << 24);
  for (int round = 0; round < 300; ++round) {
    const int nodes = 2 + static_cast<int>(random() % 6);
    const GpuNetwork network = random_network(random, nodes, nodes);
    FlowNetwork flow(nodes);
    for (const auto& edge : network.edges) flow.add(edge.from, edge.to, edge.mb_per_s);
    std::int64_t least = FlowNetwork::kUnlimited;
    for (unsigned set = 0; set < 1U << nodes; ++set)
      if ((set & 3) == 1) least = std::min(least, leaving(network, set));
    EXPECT_EQ(flow.max_flow(0, 1, budget), least);
    unsigned side = 0;
    const std::vector<bool> inside = flow.side_of_source();
    for (int node = 0; node < nodes; ++node)
      side |= inside[static_cast<std::size_t>(node)] ? 1U << node : 0;
    EXPECT_EQ(leaving(network, side), least);
    EXPECT_EQ(flow.max_flow(0, 1, budget, least / 2), least / 2);
  }
}

TEST(FlowNetwork, BeginsEachTimeWithTheCapacitiesThatAreSet) {
  FlowNetwork flow(3);
  StepBudget budget("this", 1000);
  const int first = flow.add(0, 1, 5);
  flow.add(1, 2, 7);
  EXPECT_EQ(flow.max_flow(0, 2, budget), 5);
  flow.set_capacity(first, 9);
  EXPECT_EQ(flow.max_flow(0, 2, budget), 7);
  flow.set_capacity(first, 0);
  EXPECT_EQ(flow.max_flow(0, 2, budget), 0);
}

TEST(StepBudget, EndsASearchWhoseStepsAreSpent) {
  FlowNetwork flow(100);
  for (int node = 0; node + 1 < 100; ++node) flow.add(node, node + 1, 1);
  StepBudget budget("the search", 100);
  try {
    flow.max_flow(0, 99, budget);
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_THAT(error.what(), HasSubstr("the search takes more than 100 steps"));
  }
}

TEST(BestRate, IsThatOfTheSetFromWhichLeastLeavesForEachOfItsRoots) {
  std::mt19937 random(2);
  StepBudget budget("this", 1 << 24);
  for (int round = 0; round < 300; ++round) {
    const int gpus = 2 + static_cast<int>(random() % 4);
    const GpuNetwork network = random_network(random, gpus, gpus + 2);
    std::vector<int> roots;
    for (int gpu = 0; gpu < gpus; ++gpu)
      if (random() % 2 == 0 || gpu == 0) roots.push_back(gpu);
    double least = 1e300;
    for (unsigned set = 1; set < 1U << network.nodes; ++set) {
      int inside = 0;
      for (const int root : roots) inside += static_cast<int>(set >> root & 1);
      const unsigned all = (1U << gpus) - 1;
      if (inside > 0 && (set & all) != all)
        least = std::min(least, static_cast<double>(leaving(network, set)) / inside);
    }
    EXPECT_DOUBLE_EQ(best_rate(network, roots, budget).gb_per_s() * 1000, least);
  }
}

TEST(SmallestCut, IsTheSmallestThatPartsTwoTerminals) {
  std::mt19937 random(3);
  StepBudget budget("this", 1 << 24);
  for (int round = 0; round < 300; ++round) {
    const int gpus = 2 + static_cast<int>(random() % 4);
    const GpuNetwork network = random_network(random, gpus, gpus + 2);
    std::int64_t least = FlowNetwork::kUnlimited;
    const unsigned all = (1U << gpus) - 1;
    for (unsigned set = 1; set < 1U << network.nodes; ++set)
      if ((set & all) != 0 && (set & all) != all) least = std::min(least, leaving(network, set));
    EXPECT_EQ(smallest_cut(network, budget), least);
  }
}

}  // namespace
}  // namespace tutti
