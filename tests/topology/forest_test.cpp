#include "topology/search/forest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include <tutti/error.hpp>

#include "graphs.h"
#include "topology/nccl_xml.h"
#include "topology_files.h"

namespace tutti {
namespace {

using testing::HasSubstr;

std::vector<int> every_gpu(const Paths& paths) {
  std::vector<int> gpus(static_cast<std::size_t>(paths.gpus()));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

StepBudget budget() { return {"the search for trees", kForestSteps}; }

/// Checks that each root has its trees, and that each of them reaches every GPU once, in the order
/// of its edges.
void expect_spanning(const std::vector<SpanningTree>& trees, const std::vector<int>& roots,
                     int trees_of_root, int gpus) {
  ASSERT_EQ(trees.size(), roots.size() * static_cast<std::size_t>(trees_of_root));
  for (std::size_t number = 0; number < trees.size(); ++number) {
    const SpanningTree& tree = trees[number];
    EXPECT_EQ(tree.root, roots[number / static_cast<std::size_t>(trees_of_root)]);
    std::set<int> reached{tree.root};
    for (const auto& edge : tree.edges) {
      EXPECT_TRUE(reached.contains(edge.from));
      EXPECT_TRUE(reached.insert(edge.to).second);
    }
    EXPECT_EQ(reached.size(), static_cast<std::size_t>(gpus));
  }
}

/// Checks that no link carries more than its bandwidth when every edge takes the best path, and
/// that some link carries all of it.
void expect_filled(const Paths& paths, const Forest& forest, TreeUse use = TreeUse::down) {
  std::vector<double> load(paths.links().size());
  const auto add = [&](int from, int to) {
    for (const int link : paths.between(from, to).links)
      load[static_cast<std::size_t>(link)] += forest.gb_per_s / forest.trees_of_root;
  };
  for (const SpanningTree& tree : forest.trees)
    for (const auto& edge : tree.edges) {
      if (use != TreeUse::up) add(edge.from, edge.to);
      if (use != TreeUse::down) add(edge.to, edge.from);
    }
  double fullest = 0;
  for (std::size_t link = 0; link < load.size(); ++link)
    fullest = std::max(fullest, load[link] / paths.links()[link].gb_per_s);
  EXPECT_NEAR(fullest, 1, 1e-9);
}

TEST(SplitSwitches, LeavesEveryGpuWithAllThatRootsCanSend) {
  StepBudget steps = budget();
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const Paths paths(random_graph(seed, 3 + static_cast<int>(seed % 4), 0.4));
    const GpuNetwork network = gpu_network(paths);
    const std::vector<int> roots = every_gpu(paths);
    const int trees = 1 + static_cast<int>(seed % 3);
    const std::int64_t unit = largest_tree(network, roots, trees, steps);
    ASSERT_GT(unit, 0);
    const TreeUnits left = split_switches(network, roots, trees, unit, steps);
    // No set of GPUs is left by less than the trees of its roots need.
    for (unsigned set = 1; set + 1 < 1U << left.gpus; ++set) {
      std::int64_t leaves = 0, inside = 0;
      for (int from = 0; from < left.gpus; ++from)
        for (int to = 0; to < left.gpus; ++to)
          if ((set >> from & 1) != 0 && (set >> to & 1) == 0) leaves += left.at(from, to);
      for (int gpu = 0; gpu < left.gpus; ++gpu) inside += set >> gpu & 1;
      EXPECT_GE(leaves, inside * trees) << "seed " << seed << ", set " << set;
    }
  }
}

TEST(PackTrees, FitIntoTheUnitsAndReachEveryGpu) {
  StepBudget steps = budget();
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const Paths paths(random_graph(seed, 3 + static_cast<int>(seed % 5), 0.5));
    const GpuNetwork network = gpu_network(paths);
    const std::vector<int> roots =
        seed % 2 == 0 ? every_gpu(paths) : std::vector<int>{static_cast<int>(seed % 3)};
    const int trees = 1 + static_cast<int>(seed % 4);
    TreeUnits units =
        split_switches(network, roots, trees, largest_tree(network, roots, trees, steps), steps);
    const auto packed = pack_trees(units, roots, trees, steps);
    expect_spanning(packed, roots, trees, paths.gpus());
    for (const SpanningTree& tree : packed)
      for (const auto& edge : tree.edges) EXPECT_GE(--units.at(edge.from, edge.to), 0);
  }
}

TEST(LargestTree, IsTheLargestThatFits) {
  StepBudget steps = budget();
  // Four GPUs, each two of which are joined by 12 GB/s: 36 GB/s enter each, for three others.
  const GpuNetwork network = gpu_network(Paths(full_mesh(4, 12)));
  EXPECT_EQ(largest_tree(network, {0, 1, 2, 3}, 1, steps), 12000);
  EXPECT_EQ(largest_tree(network, {0, 1, 2, 3}, 2, steps), 6000);
  EXPECT_EQ(largest_tree(network, {0}, 3, steps), 12000);
  EXPECT_EQ(largest_tree(network, {0}, 4, steps), 6000);  // two by each link
}

TEST(ImproveTrees, FindsTheLinksThatNobodyUses) {
  StepBudget steps = budget();
  const Paths paths(full_mesh(4, 10));
  // A star and two chains, of which all begin with the same link.
  std::vector<SpanningTree> trees{
      {0, {{0, 1}, {1, 2}, {2, 3}}}, {0, {{0, 1}, {1, 2}, {2, 3}}}, {0, {{0, 1}, {0, 2}, {0, 3}}}};
  improve_trees(paths, trees, TreeUse::down, steps);
  expect_spanning(trees, {0}, 3, 4);
  std::map<std::pair<int, int>, int> load;
  for (const auto& tree : trees)
    for (const auto& edge : tree.edges) EXPECT_EQ(++load[std::pair(edge.from, edge.to)], 1);
}

TEST(Forest, OfAFullMeshReachesTheBound) {
  const Paths paths(full_mesh(8, 48));
  StepBudget steps = budget();
  const Forest forest = pack_forest(paths, every_gpu(paths), 8, TreeUse::down, steps);
  EXPECT_EQ(forest.trees_of_root, 1);
  EXPECT_DOUBLE_EQ(forest.gb_per_s, 48);
  EXPECT_DOUBLE_EQ(forest.bound_gb_per_s, 48);
  for (const SpanningTree& tree : forest.trees) EXPECT_EQ(tree.depth(), 1);
}

TEST(Forest, OfManyGpusBehindOneSwitchIsFoundWithoutSplittingIt) {
  Graph graph;
  const int fabric = add_device(graph, DeviceKind::nv_switch);
  for (int gpu = 0; gpu < 72; ++gpu)
    connect(graph, fabric, add_device(graph, DeviceKind::gpu), WireKind::nvlink, 710);
  const Paths paths(graph);
  StepBudget steps("the search for trees", 1 << 28);
  const Forest forest = pack_forest(paths, every_gpu(paths), 8, TreeUse::down, steps);
  expect_spanning(forest.trees, every_gpu(paths), forest.trees_of_root, 72);
  EXPECT_NEAR(forest.gb_per_s, 10, 1e-9);
  EXPECT_NEAR(forest.bound_gb_per_s, 10, 1e-9);
}

TEST(Forest, OfAChainHasEdgesBetweenGpusThatReachEachOtherAlone) {
  Graph graph;
  for (int gpu = 0; gpu < 5; ++gpu) add_device(graph, DeviceKind::gpu);
  for (int gpu = 1; gpu < 5; ++gpu) connect(graph, gpu - 1, gpu, WireKind::nvlink, 20);
  const Paths paths(graph);
  ASSERT_EQ(paths.between(0, 4).kind, PathKind::none);
  StepBudget steps = budget();
  const Forest forest = pack_forest(paths, every_gpu(paths), 2, TreeUse::both, steps);
  expect_spanning(forest.trees, every_gpu(paths), forest.trees_of_root, 5);
  for (const SpanningTree& tree : forest.trees)
    for (const auto& edge : tree.edges)
      EXPECT_NE(paths.between(edge.from, edge.to).kind, PathKind::none);
  expect_filled(paths, forest, TreeUse::both);
}

TEST(Forest, OfRandomGraphsFillsLinksAndStaysBelowTheBound) {
  for (std::uint32_t seed = 100; seed < 130; ++seed) {
    const Paths paths(random_graph(seed, 3 + static_cast<int>(seed % 6), 0.5));
    for (const TreeUse use : {TreeUse::down, TreeUse::up, TreeUse::both}) {
      StepBudget steps = budget();
      const Forest forest = pack_forest(paths, every_gpu(paths), 4, use, steps);
      expect_spanning(forest.trees, every_gpu(paths), forest.trees_of_root, paths.gpus());
      expect_filled(paths, forest, use);
      EXPECT_LE(forest.gb_per_s, forest.bound_gb_per_s * (1 + 1e-9)) << seed;
      EXPECT_GE(forest.gb_per_s, forest.bound_gb_per_s * 0.5) << seed;
    }
  }
}

TEST(Forest, OfRealMachinesReachesThisShareOfTheBound) {
  const std::vector<std::string> files = shared_files("topologies");
  if (files.empty()) GTEST_SKIP() << "there is no folder of topologies beside the sources";
  // Trees start from every GPU at once, or from the first one.
  const std::map<std::string, std::pair<double, double>> known{
      {"p4d-24xl-topo.xml", {1, 1}},       {"topo_16p1h.xml", {0.933, 0.9}},
      {"topo_3p_pcie.xml", {1, 1}},        {"topo_4p1h.xml", {1, 1}},
      {"topo_8p6l.xml", {1, 1}},           {"topo_8p_940.xml", {1, 1}},
      {"topo_8p_pcie.xml", {1, 1}},        {"topo_8p_rome.xml", {0.848, 0.937}},
      {"topo_8p_rome_4n_1.xml", {1, 1}},   {"topo_8p_ts1.xml", {0.811, 1}},
      {"topo_collnet_n1.xml", {0.875, 1}},
  };
  for (const std::string& file : files) {
    const Paths paths(read_nccl_topology(file, content_of(file)));
    const auto found = known.find(std::filesystem::path(file).filename());
    ASSERT_NE(found, known.end()) << file;
    StepBudget steps = budget();
    for (const bool all : {true, false}) {
      const std::vector<int> roots = all ? every_gpu(paths) : std::vector<int>{0};
      const Forest forest = pack_forest(paths, roots, 8, TreeUse::down, steps);
      expect_spanning(forest.trees, roots, forest.trees_of_root, paths.gpus());
      expect_filled(paths, forest);
      const double least = all ? found->second.first : found->second.second;
      EXPECT_GE(forest.gb_per_s, least * forest.bound_gb_per_s * (1 - 1e-9)) << file;
      EXPECT_LE(forest.gb_per_s, forest.bound_gb_per_s * (1 + 1e-9)) << file;
    }
  }
}

TEST(Forest, IsTheSameEachTime) {
  const Paths paths(random_graph(7, 8, 0.4));
  std::vector<std::vector<std::pair<int, int>>> edges;
  for (int time = 0; time < 2; ++time) {
    StepBudget steps = budget();
    for (const SpanningTree& tree :
         pack_forest(paths, every_gpu(paths), 4, TreeUse::down, steps).trees) {
      edges.emplace_back();
      for (const auto& edge : tree.edges) edges.back().emplace_back(edge.from, edge.to);
    }
  }
  ASSERT_EQ(edges.size() % 2, 0U);
  for (std::size_t at = 0; at < edges.size() / 2; ++at)
    EXPECT_EQ(edges[at], edges[at + edges.size() / 2]);
}

std::string refusal(const Graph& graph, std::int64_t most_steps = kForestSteps) {
  try {
    const Paths paths(graph);
    StepBudget steps("the search for trees", most_steps);
    pack_forest(paths, every_gpu(paths).empty() ? std::vector<int>{0} : every_gpu(paths), 2,
                TreeUse::down, steps);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    return error.what();
  }
  return "none";
}

TEST(Forest, OfAGraphWithoutOneIsRefused) {
  EXPECT_THAT(refusal({}), HasSubstr("at least two GPUs"));
  EXPECT_THAT(refusal(full_mesh(1, 1)), HasSubstr("at least two GPUs"));
  Graph parted = full_mesh(3, 10);
  add_device(parted, DeviceKind::gpu);
  EXPECT_THAT(refusal(parted), HasSubstr("do not all reach each other"));
  parted.wires.push_back({0, 3, WireKind::nvlink, 10, 0, {}});  // a way there, and none back
  EXPECT_THAT(refusal(parted), HasSubstr("do not all reach each other"));
  Graph one_way;
  for (int gpu = 0; gpu < 3; ++gpu) add_device(one_way, DeviceKind::gpu);
  for (int gpu = 0; gpu < 3; ++gpu)
    one_way.wires.push_back({gpu, (gpu + 1) % 3, WireKind::nvlink, 10, 0, {}});
  for (int gpu = 0; gpu < 3; ++gpu)  // The ways back are slow, so that paths are there.
    one_way.wires.push_back({(gpu + 1) % 3, gpu, WireKind::nvlink, 1e-4, 0, {}});
  EXPECT_EQ(refusal(one_way), "none");
  EXPECT_THAT(refusal(full_mesh(3, 1e-9)), HasSubstr("links of at least 1 MB/s"));
  EXPECT_EQ(refusal(full_mesh(3, 1e300)), "none");
  EXPECT_THAT(refusal(full_mesh(64, 10), 1 << 20), HasSubstr("takes more than 1048576 steps"));
}

}  // namespace
}  // namespace tutti
