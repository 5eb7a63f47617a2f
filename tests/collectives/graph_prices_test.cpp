// Compares the simulator over a graph with times that were calculated by hand, and one rank of each
// class with all ranks.
#include "collectives/planning/graph_prices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <tutti/error.hpp>

#include "support.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNode = 10, kPort = 5;  // 10^9 bytes a second

/// Nodes of `gpus` GPUs at one NVSwitch, whose GPUs share `ports` ports by turns.
Fabric fabric(int nodes, int gpus, int ports, int nodes_per_leaf = 0, double oversubscription = 1) {
  Fabric fabric;
  Graph& node = fabric.node;
  const auto add = [&](DeviceKind kind, const std::string& name, int number) {
    node.devices.push_back({kind, name, -1, number, 0, {}});
    return static_cast<int>(node.devices.size()) - 1;
  };
  const int middle = add(DeviceKind::nv_switch, "NVSwitch", 0);
  const int bus = add(DeviceKind::pci, "bus", 0);
  for (int gpu = 0; gpu < gpus; ++gpu) {
    const int device = add(DeviceKind::gpu, "GPU " + std::to_string(gpu), gpu);
    connect(node, device, middle, WireKind::nvlink, kNode);
    connect(node, device, bus, WireKind::pci, kNode / 2);
  }
  for (int port = 0; port < ports; ++port)
    connect(node, bus, add(DeviceKind::port, "net " + std::to_string(port), port), WireKind::net,
            kPort);
  fabric.nodes = nodes;
  fabric.rails = ports;
  fabric.nodes_per_leaf = nodes_per_leaf > 0 ? nodes_per_leaf : nodes;
  fabric.oversubscription = oversubscription;
  return fabric;
}

/// Costs that are easy to calculate with: a byte takes 1 ps to copy, and 1 ps more to reduce.
GraphCosts simple() {
  GraphCosts costs;
  costs.step = 1000;
  costs.node_latency = 100'000;
  costs.network_latency = 500'000;
  costs.copy_gb_per_s = costs.reduce_gb_per_s = 1000;
  return costs;
}

GraphCall call(std::string_view algorithm, int ranks, std::uint64_t bytes,
               Collective what = Collective::all_reduce) {
  return {.algorithm = &testing::algorithm_named(algorithm),
          .what = what,
          .ranks = ranks,
          .bytes = bytes};
}

GraphPrice price(const GraphCall& call, const Fabric& fabric, const GraphCosts& costs = simple()) {
  return price_on_graph(call, Routes(fabric), costs);
}

TEST(GraphPrices, OfAnExchangeAreTwoStepsATransferAndALatency) {
  // Each rank copies 4096 bytes into a message (1000 + 4096 ps), which take 100 ps each on the
  // link, arrive 100 000 ps later, and are reduced (1000 + 2 * 4096 ps).
  const GraphPrice found = price(call("one_shot", 2, 4096), fabric(1, 2, 1));
  EXPECT_EQ(found.time, 1000 + 4096 + 409'600 + 100'000 + 1000 + 2 * 4096);
  EXPECT_DOUBLE_EQ(found.parts.steps, 2000);
  EXPECT_DOUBLE_EQ(found.parts.bytes, 3 * 4096);
  EXPECT_DOUBLE_EQ(found.parts.transfer, 409'600);
  EXPECT_DOUBLE_EQ(found.parts.latency, 100'000);
  EXPECT_TRUE(found.exact);
  EXPECT_EQ(found.classes, 1u) << "both ranks do the same";
  EXPECT_EQ(found.at_least, 409'600);
  EXPECT_THAT(found.bottleneck, HasSubstr("nvlink"));
}

TEST(GraphPrices, OfMessagesThatShareALinkAreThoseOfTheirFairShare) {
  // Three messages of 4096 bytes leave GPU 0 at once, each with a third of its link.
  const GraphPrice found = price(call("one_shot", 4, 4096, Collective::broadcast), fabric(1, 4, 1));
  EXPECT_EQ(found.time, 1000 + 4096 + 3 * 409'600 + 100'000 + 1000 + 4096);
  ASSERT_EQ(found.loads.size(), 1u);
  EXPECT_EQ(found.loads[0].kind, RouteKind::nvlink);
  EXPECT_DOUBLE_EQ(found.loads[0].most_bytes, 3 * 4096);
}

TEST(GraphPrices, BetweenNodesAreThoseOfTheirPortsAndSpines) {
  // Makes two nodes of one GPU with a port of 5 GB/s; between leaves with four times more nodes
  // than spines carry, a quarter of that.
  const auto time = [](int nodes_per_leaf, double oversubscription) {
    return price(call("one_shot", 2, 4096), fabric(2, 1, 1, nodes_per_leaf, oversubscription)).time;
  };
  const Picoseconds rest = 1000 + 4096 + 500'000 + 1000 + 2 * 4096;
  EXPECT_EQ(time(2, 4), rest + 819'200);
  EXPECT_EQ(time(1, 4), rest + 4 * 819'200);
}

TEST(GraphPrices, OfASmallWindowAreHigherWhereAnswersTakeLong) {
  GraphCosts costs = simple();
  GraphCall many = call("one_shot", 2, 1 << 20, Collective::broadcast);
  many.message_bytes = 4096;
  costs.node_latency = 1'000'000;
  costs.window = 2;
  const Picoseconds narrow = price(many, fabric(1, 2, 1), costs).time;
  // Two messages are on their way at once, and what each frees is known two latencies later.
  EXPECT_NEAR(static_cast<double>(narrow), 128 * (409'600 + 2'000'000 + 2 * 5096),
              0.02 * static_cast<double>(narrow));
  costs.window = 8;
  EXPECT_NEAR(static_cast<double>(price(many, fabric(1, 2, 1), costs).time), 256 * 409'600,
              0.02 * 256 * 409'600);
}

/// Makes fabrics of 64 ranks at most: alike in all places, with a last leaf of fewer nodes, with
/// fewer ports than GPUs, and with narrow spines.
std::vector<Fabric> fabrics() {
  return {fabric(1, 8, 1),       fabric(8, 8, 8),        fabric(8, 4, 2, 4, 2),
          fabric(7, 4, 4, 3),    fabric(16, 2, 1, 8, 4), fabric(9, 7, 3, 2, 1.5),
          fabric(16, 4, 4, 4, 8)};
}

// Where ranks of a class do the same, the times are equal but for rounding.
TEST(GraphPrices, OfOneRankOfEachClassAreThoseOfAllRanks) {
  for (const Fabric& of : fabrics()) {
    const Routes routes(of);
    for (const Algorithm& algorithm : algorithms())
      for (const Collective what : testing::all_collectives())
        for (const int ranks : {static_cast<int>(routes.ranks()), 5})
          for (const std::uint64_t bytes : {1024u, 768u << 10}) {
            if (!algorithm.knows(what, ranks) || what == Collective::all_to_all) continue;
            GraphCall one = call(algorithm.name, ranks,
                                 what == Collective::all_reduce ? bytes : bytes / 8, what);
            one.message_bytes = 64 << 10;
            const GraphPrice classes = price_on_graph(one, routes, GraphCosts{});
            one.every_rank = true;
            const GraphPrice all = price_on_graph(one, routes, GraphCosts{});
            const auto expected = static_cast<double>(all.time);
            EXPECT_NEAR(static_cast<double>(classes.time), expected,
                        (classes.exact ? 1e-6 : 0.05) * expected)
                << algorithm.name << ' ' << to_string(what) << " of " << ranks << " ranks, "
                << bytes << " bytes, " << of.nodes << " nodes of " << routes.gpus();
            EXPECT_LE(classes.at_least, classes.time + 1000);
            EXPECT_LE(classes.classes, static_cast<std::size_t>(ranks));
            EXPECT_NEAR(classes.parts.sum(), static_cast<double>(classes.time),
                        1e-3 * static_cast<double>(classes.time) + 100);
          }
  }
}

TEST(GraphPrices, OfFiveHundredRanksByClassesAreThoseOfAllRanks) {
  for (const Fabric& of : {fabric(64, 8, 8, 16, 2), fabric(60, 8, 4, 16, 2)}) {
    const Routes routes(of);
    for (const char* algorithm : {"ring", "double_binary_tree", "hierarchical"}) {
      GraphCall one = call(algorithm, static_cast<int>(routes.ranks()), 4 << 20);
      const auto classes = static_cast<double>(price_on_graph(one, routes, GraphCosts{}).time);
      one.every_rank = true;
      const auto all = static_cast<double>(price_on_graph(one, routes, GraphCosts{}).time);
      EXPECT_NEAR(classes, all, 0.03 * all) << algorithm << " of " << one.ranks;
    }
  }
}

TEST(GraphPrices, WhereRanksAreAlikeTakeOneOfEachClass) {
  const Routes routes(fabric(512, 8, 8));
  const GraphPrice ring = price_on_graph(call("ring", 4096, 4096 * 4096), routes, simple());
  EXPECT_EQ(ring.classes, 8u) << "the place in a node";
  EXPECT_TRUE(ring.exact) << ring.reasons[0];
  const GraphPrice hierarchical =
      price_on_graph(call("hierarchical", 4096, 1 << 20), routes, simple());
  EXPECT_EQ(hierarchical.classes, 512u) << "the place of a node in the trees between nodes";
}

TEST(GraphPrices, LeaveOutRoundsAndPiecesThatRepeat) {
  for (const char* algorithm : {"recursive_doubling", "hierarchical"}) {
    GraphCall pieces = call(algorithm, 32, 32 << 20);
    pieces.message_bytes = 32 << 10;
    const Fabric of = fabric(8, 4, 4);
    const GraphPrice some = price(pieces, of);
    EXPECT_GT(some.repeated_steps, some.events) << algorithm;
    pieces.every_rank = true;
    const GraphPrice all = price(pieces, of);
    EXPECT_EQ(all.repeated_steps, 0u);
    const auto time = static_cast<double>(all.time);
    EXPECT_NEAR(static_cast<double>(some.time), time, 1e-5 * time) << algorithm;
    EXPECT_NEAR(some.parts.sum(), time, 1e-4 * time) << algorithm;
  }

  const Fabric wide = fabric(128, 8, 8);
  GraphCall ring = call("ring", 1024, 1 << 20);
  const GraphPrice rounds = price(ring, wide);
  EXPECT_GT(rounds.repeated_steps, 10 * rounds.events);
  ring.every_rank = true;
  EXPECT_NEAR(static_cast<double>(rounds.time), static_cast<double>(price(ring, wide).time),
              1e-5 * static_cast<double>(rounds.time));
}

// 12 500 nodes of 8: a simulation of all steps would have 2 * 10^10.
TEST(GraphPrices, OfAHundredThousandRanksAroundARingTakeAFewThousandEvents) {
  const Fabric of = fabric(12'500, 8, 8, 50);
  const GraphPrice found = price(call("ring", 100'000, 16 << 20), of, GraphCosts{});
  EXPECT_LT(found.events, 100'000u);
  EXPECT_LE(found.classes, 1024u);
  EXPECT_FALSE(found.exact);
  EXPECT_THAT(found.reasons, ElementsAre(HasSubstr("as long as the longest")));
  // Each of 2 * 99 999 stages waits for a message over a node's border about once in eight hops, or
  // for its own step.
  EXPECT_GT(found.time, 2 * 99'999 * Picoseconds{500'000});
  EXPECT_LT(found.time, 2 * 99'999 * Picoseconds{4'000'000});
}

// More classes than are simulated: ranks of a class then differ far away, and this is said.
TEST(GraphPrices, OfClassesThatAreNotQuiteAlikeAreNear) {
  const Routes routes(fabric(37, 4, 4, 5, 4));
  CallSignature signature;
  signature.what = Collective::all_reduce;
  signature.count = 1 << 20;
  RankPlans plans(signature, 512 << 10);
  for (int rank = 0; rank < 148; ++rank)
    plans.add(testing::algorithm_named("ring").plan_in_rounds(
        {.what = Collective::all_reduce, .rank = rank, .ranks = 148}));
  const ChannelRoutes channels = channel_routes(plans, routes);
  const RankClasses fine = classes_of(plans, channels, routes, 148);
  EXPECT_TRUE(fine.complete);
  const RankClasses coarse = classes_of(plans, channels, routes, 40);
  EXPECT_FALSE(coarse.complete);
  EXPECT_LE(coarse.first.size(), 40u);
  const auto time = [&](const RankClasses& classes) {
    return static_cast<double>(run_on_graph({plans, channels, classes, routes, GraphCosts{}}).time);
  };
  const double all = time(single_ranks(plans, channels, routes));
  EXPECT_NEAR(time(fine), all, 1e-6 * all);
  EXPECT_NEAR(time(coarse), all, 0.05 * all);
}

TEST(GraphPrices, RecordStepsOfTheFirstRanksUpToALimit) {
  GraphCall recorded = call("ring", 16, 1 << 16);
  recorded.recorded_ranks = 2;
  const GraphPrice found = price(recorded, fabric(4, 4, 4));
  EXPECT_EQ(found.spans.size(), 2u * 32);
  Picoseconds last = 0;
  for (const RankSpan& one : found.spans) {
    EXPECT_LT(one.rank, 2);
    EXPECT_LT(one.span.begin, one.span.end);
    last = std::max(last, one.span.end);
  }
  EXPECT_LE(last, found.time);
  recorded.most_spans = 10;
  EXPECT_LE(price(recorded, fabric(4, 4, 4)).spans.size(), 20u);
}

ErrorKind refusal(const GraphCall& call, const Fabric& fabric, const GraphCosts& costs,
                  const char* why) {
  try {
    price(call, fabric, costs);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(why));
    return error.kind();
  }
  ADD_FAILURE() << "no error was thrown: " << why;
  return ErrorKind::internal;
}

TEST(GraphPrices, OfWhatCannotBeSimulatedAreRefused) {
  const Fabric of = fabric(4, 4, 4);
  EXPECT_EQ(refusal(call("ring", 17, 1 << 10), of, simple(), "the fabric has 16 GPUs"),
            ErrorKind::usage);
  GraphCosts costs = simple();
  costs.copy_gb_per_s = 0;
  EXPECT_EQ(refusal(call("ring", 16, 1 << 10), of, costs, "more than 0 bytes"), ErrorKind::usage);
  costs = simple();
  costs.window = 1;
  EXPECT_EQ(refusal(call("ring", 16, 1 << 10), of, costs, "a window of 1"), ErrorKind::usage);
  costs = simple();
  costs.step = -1;
  EXPECT_EQ(refusal(call("ring", 16, 1 << 10), of, costs, "0 to 1 second"), ErrorKind::usage);
  // A link that needs 30 years for its bytes.
  Fabric slow = of;
  for (Wire& wire : slow.node.wires) wire.gb_per_s = 1e-12;
  EXPECT_EQ(refusal(call("ring", 16, 1 << 20), slow, simple(), "eleven days"),
            ErrorKind::unavailable);
  for (Wire& wire : slow.node.wires) wire.gb_per_s = 1e-300;
  EXPECT_EQ(refusal(call("ring", 16, 1 << 20), slow, simple(), "eleven days"),
            ErrorKind::unavailable);
  // Every rank sends to every other.
  EXPECT_EQ(refusal(call("one_shot", 20'000, 8), fabric(2500, 8, 8), simple(),
                    "choose another algorithm or fewer ranks"),
            ErrorKind::unavailable);
  GraphCall narrow = call("bruck", 16, 1 << 10, Collective::all_gather);
  narrow.message_bytes = 64;
  EXPECT_EQ(refusal(narrow, of, simple(), "more than messages of 64 bytes hold"),
            ErrorKind::unavailable);
}

}  // namespace
}  // namespace tutti
