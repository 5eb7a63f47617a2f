#include "collectives/synthesis/synthesize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <numeric>

#include <tutti/error.hpp>

#include "collectives/formats/schedule_file.h"
#include "collectives/synthesis/graph_price.h"
#include "support.h"
#include "tests/topology/graphs.h"
#include "tests/topology/topology_files.h"
#include "topology/nccl_xml.h"

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kBytes = 256 << 20;

Synthesis synthesized(const Paths& paths, Collective what, int root = 0) {
  StepBudget budget("the search for trees", kForestSteps);
  return synthesize(paths, {what, root, 8}, budget);
}

std::vector<int> in_order(int count) {
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

double price(const std::vector<Schedule>& schedules, const Paths& paths) {
  return price_on_graph(schedules, paths, in_order(paths.gpus()), kBytes).us();
}

/// Returns the least price of all algorithms, with the GPUs in their order.
double best_algorithm(const Paths& paths, Collective what) {
  double best = 1e300;
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.knows(what, paths.gpus()))
      best = std::min(best, price(plan_all(algorithm, what, paths.gpus()), paths));
  return best;
}

std::vector<Collective> collectives_with_synthesis() {
  std::vector<Collective> found;
  for (const Collective what : all_collectives())
    if (can_synthesize(what)) found.push_back(what);
  return found;
}

TEST(Synthesize, ProvesSchedulesOfRandomGraphsAndEveryRoot) {
  ASSERT_EQ(collectives_with_synthesis().size(), 5U);
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    const Paths paths(random_graph(seed, 2 + static_cast<int>(seed % 5), 0.5));
    for (const Collective what : collectives_with_synthesis())
      for (int root = 0; root < (collectives::has_root(what) ? paths.gpus() : 1); ++root) {
        const Synthesis found = synthesized(paths, what, root);
        ASSERT_EQ(static_cast<int>(found.schedules.size()), paths.gpus());
        for (const bool in_place : {false, true})
          EXPECT_TRUE(verify(found.schedules, {.window = 2, .in_place = in_place}).ok);
        EXPECT_EQ(found.schedules[0].root, root);
      }
  }
}

TEST(Synthesize, LoadsNoLinkBeyondWhatTheForestSays) {
  for (std::uint32_t seed = 20; seed < 40; ++seed) {
    const Paths paths(random_graph(seed, 3 + static_cast<int>(seed % 5), 0.4));
    for (const Collective what : collectives_with_synthesis()) {
      const Synthesis found = synthesized(paths, what);
      const GraphPrice own = price_on_graph(found.schedules, paths, in_order(paths.gpus()), kBytes);
      const auto roots =
          static_cast<double>(found.forest.trees.size()) / found.forest.trees_of_root;
      EXPECT_NEAR(own.busiest_us, kBytes / roots / found.forest.gb_per_s / 1e3, 1e-3)
          << to_string(what) << ", seed " << seed;
    }
  }
}

TEST(Synthesize, IsAtLeastAsFastAsEveryAlgorithmOfTutti) {
  for (std::uint32_t seed = 40; seed < 60; ++seed) {
    const Paths paths(random_graph(seed, 4 + static_cast<int>(seed % 4), 0.3));
    for (const Collective what : {Collective::all_reduce, Collective::broadcast})
      EXPECT_LE(price(synthesized(paths, what).schedules, paths),
                best_algorithm(paths, what) * 1.05)
          << to_string(what) << ", seed " << seed;
  }
}

TEST(Synthesize, BeatsTheBestAlgorithmOnRealMachinesByThisFactor) {
  const std::vector<std::string> files = shared_files("topologies");
  if (files.empty()) GTEST_SKIP() << "there is no folder of topologies beside the sources";
  struct Known {
    double all_gather, all_reduce, broadcast;
  };
  const std::map<std::string, Known> known{
      {"p4d-24xl-topo.xml", {1.19, 1.19, 1}},
      {"topo_16p1h.xml", {11.9, 10.5, 16.6}},
      {"topo_3p_pcie.xml", {1, 1, 1}},
      {"topo_4p1h.xml", {1, 1.33, 1.99}},
      {"topo_8p6l.xml", {1.49, 2.56, 2.56}},
      {"topo_8p_940.xml", {1, 1, 1}},
      {"topo_8p_pcie.xml", {1, 1, 1}},
      {"topo_8p_rome.xml", {3.49, 3.02, 3.74}},
      {"topo_8p_rome_4n_1.xml", {3.99, 2.99, 2.28}},
      {"topo_8p_ts1.xml", {3.49, 2.9, 3.33}},
      {"topo_collnet_n1.xml", {2.99, 3.12, 2.28}},
  };
  for (const std::string& file : files) {
    const Paths paths(read_nccl_topology(file, content_of(file)));
    const auto found = known.find(std::filesystem::path(file).filename());
    ASSERT_NE(found, known.end()) << file;
    const Known& least = found->second;
    for (const auto& [what, factor] : {std::pair{Collective::all_gather, least.all_gather},
                                       {Collective::reduce_scatter, least.all_gather},
                                       {Collective::all_reduce, least.all_reduce},
                                       {Collective::broadcast, least.broadcast}}) {
      const double own = price(synthesized(paths, what).schedules, paths);
      EXPECT_GE(best_algorithm(paths, what) / own, factor * 0.999)
          << file << ", " << to_string(what);
    }
  }
}

TEST(Synthesize, IsTheSameEachTimeAndSurvivesAFile) {
  const Paths paths(random_graph(3, 6, 0.5));
  for (const Collective what : collectives_with_synthesis()) {
    const Synthesis found = synthesized(paths, what);
    EXPECT_EQ(found.schedules, synthesized(paths, what).schedules);
    ScheduleFile file;
    file.name = "mine";
    file.schedules = found.schedules;
    EXPECT_EQ(read_schedules("mine.json", write_schedules(file)).schedules, found.schedules);
  }
}

std::string refusal(const Graph& graph, const SynthesisRequest& request, ErrorKind kind,
                    std::int64_t steps = kForestSteps) {
  try {
    StepBudget budget("the search for trees", steps);
    synthesize(Paths(graph), request, budget);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "none";
}

TEST(Synthesize, RefusesWhatItCannotWrite) {
  const Graph mesh = full_mesh(3, 10);
  EXPECT_THAT(refusal(mesh, {Collective::all_to_all}, ErrorKind::usage),
              HasSubstr("all_to_all cannot be synthesized; all_gather"));
  EXPECT_THAT(refusal(mesh, {Collective::broadcast, 3}, ErrorKind::usage),
              HasSubstr("the root 3 is no GPU of the topology's 3"));
  EXPECT_THAT(refusal(mesh, {Collective::broadcast, -1}, ErrorKind::usage),
              HasSubstr("the root -1 is no GPU"));
  EXPECT_THAT(refusal({}, {Collective::all_gather}, ErrorKind::unavailable),
              HasSubstr("at least two GPUs"));
  Graph parted = full_mesh(3, 10);
  add_device(parted, DeviceKind::gpu);
  EXPECT_THAT(refusal(parted, {Collective::all_reduce}, ErrorKind::unavailable),
              HasSubstr("do not all reach each other"));
  EXPECT_THAT(refusal(full_mesh(48, 10), {Collective::all_reduce}, ErrorKind::unavailable, 1 << 20),
              HasSubstr("takes more than"));
}

TEST(PriceOnGraph, IsTheBusiestLinkAndTheLongestChainOfMessages) {
  Graph graph = full_mesh(4, 10);
  for (Wire& wire : graph.wires) wire.latency_us = 2;
  const Paths paths(graph);
  // Around a ring each link carries three of four blocks, one after another.
  const auto ring = plan_all(algorithm_named("ring"), Collective::all_gather, 4);
  const GraphPrice of_ring = price_on_graph(ring, paths, in_order(4), 4e6);
  EXPECT_DOUBLE_EQ(of_ring.busiest_us, 300);
  EXPECT_DOUBLE_EQ(of_ring.chain_us, 3 * (kMessageUs + 2));
  EXPECT_DOUBLE_EQ(of_ring.us(), 309);
  // All pairs at once use each link for one block.
  const auto pairs = plan_all(algorithm_named("all_pairs"), Collective::all_gather, 4);
  const GraphPrice of_pairs = price_on_graph(pairs, paths, in_order(4), 4e6);
  EXPECT_DOUBLE_EQ(of_pairs.busiest_us, 100);
  EXPECT_DOUBLE_EQ(of_pairs.chain_us, kMessageUs + 2);
}

TEST(PriceOnGraph, FollowsTheOrderOfTheGpus) {
  Graph graph;  // a ring of fast links, and a processor for the others
  const std::vector<int> order{0, 3, 1, 4, 2, 5};
  const int cpu = add_device(graph, DeviceKind::cpu);
  for (int gpu = 0; gpu < 6; ++gpu)
    connect(graph, cpu, add_device(graph, DeviceKind::gpu, cpu), WireKind::pci, 1);
  for (std::size_t at = 0; at < 6; ++at)
    connect(graph, 1 + order[at], 1 + order[(at + 1) % 6], WireKind::nvlink, 10);
  const Paths paths(graph);
  const auto ring = plan_all(algorithm_named("ring"), Collective::all_gather, 6);
  EXPECT_DOUBLE_EQ(price_on_graph(ring, paths, order, 6e6).busiest_us, 500);
  // GPU 2 reaches GPU 3 by the processor alone.
  EXPECT_DOUBLE_EQ(price_on_graph(ring, paths, in_order(6), 6e6).busiest_us, 5000);
}

TEST(PriceOnGraph, NeedsAPathForEachMessage) {
  Graph parted;
  add_device(parted, DeviceKind::gpu);
  add_device(parted, DeviceKind::gpu);
  const Paths paths(parted);
  const auto ring = plan_all(algorithm_named("ring"), Collective::all_gather, 2);
  EXPECT_THROW(price_on_graph(ring, paths, {0, 1}, 1e6), Error);
}

}  // namespace
}  // namespace tutti::testing
