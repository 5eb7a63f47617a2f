// Compares the simulator with times that were calculated by hand, and checks properties that hold
// for all schedules.
#include "collectives/planning/simulate.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support.h"

namespace tutti {
namespace {

std::vector<Program> programs(std::string_view algorithm, Collective what, int ranks,
                              std::size_t bytes, std::size_t message_bytes = 1 << 16) {
  CallSignature call;
  call.what = what;
  call.count = bytes;
  std::vector<Program> all;
  for (const Schedule& schedule :
       testing::plan_all(testing::algorithm_named(algorithm), what, ranks))
    all.push_back(compile(schedule, call, message_bytes));
  return all;
}

/// Costs that are easy to calculate with.
MachineCosts simple() {
  MachineCosts costs;
  costs.call = 5;
  costs.step = 10;
  costs.message = 1;
  costs.copy_kib = 200;
  costs.far_kib = 2000;
  costs.reduce_kib = 40;
  costs.yield = 1000;
  costs.links.fill({100, 50, 3000, 7000});
  return costs;
}

Picoseconds price(const std::vector<Program>& programs, const MachineCosts& costs, int cores = 64,
                  std::size_t ring_bytes = 3 << 16) {
  return simulate(programs, one_machine(costs, static_cast<int>(programs.size()), cores,
                                        LinkKind::shared_l3, ring_bytes));
}

TEST(Simulate, ExchangeOfALineTakesTwoStepsAndALatency) {
  // A step with a message takes 10 + 1. The message is sent at 11, seen at 111 and reduced at 122;
  // the call takes 5. So eight calls end at 122 + 7 * 127 = 1011.
  EXPECT_EQ(price(programs("one_shot", Collective::all_reduce, 2, 8), simple()), 1011 / 8);
}

TEST(Simulate, CallsOfABroadcastFollowEachOtherWithoutWaiting) {
  // The root sends a message every 11 + 5. The other rank takes 11 + 5 for each message, too: the
  // first arrives at 111 and is received at 122, the last is received at 122 + 7 * 16 = 234.
  EXPECT_EQ(price(programs("one_shot", Collective::broadcast, 2, 8), simple()), 234 / 8);
}

TEST(Simulate, BytesOfAMessageAreWrittenCrossAndAreRead) {
  // With 1 KiB, the root takes 10 + 1, 200 + 200 to copy from and to its buffer, and 7000 to write
  // the message: 7411. The other rank sees the message 100 + 50 later, and takes 10 + 1, 3000 to
  // read it and 200 to write its buffer: 3211. The root's calls follow each other every 7411 + 5,
  // and the last message is received at 8 * 7411 + 7 * 5 + 150 + 3211.
  const Picoseconds end = 8 * 7411 + 7 * 5 + 150 + 3211;
  EXPECT_EQ(price(programs("one_shot", Collective::broadcast, 2, 1024), simple()), end / 8);
}

TEST(Simulate, ReductionCostsEachOperandButTheFirst) {
  MachineCosts costs = simple();
  const auto call = programs("one_shot", Collective::all_reduce, 2, 1024);
  const Picoseconds before = price(call, costs);
  costs.reduce_kib += 1000;
  EXPECT_EQ(price(call, costs), before + 1000) << "1 KiB, one operand more than one";
}

TEST(Simulate, RanksOfOneCoreTakeTurnsAndPayForThem) {
  // Rank 0 sends (11) and then has nothing to do. After a yield, rank 1 sends, reduces, and sends
  // for its second call: 11 + 11 + 5 + 11 = 38. From then on a rank in its turn reduces what has
  // arrived, sends, and reduces again, which takes 54. The last two turns take 43 and 11: 11 + 1038
  // + 6 * 1054 + 1043 + 1011 = 9427.
  MachineCosts costs = simple();
  costs.links.fill({0, 0, 0, 0});
  EXPECT_EQ(price(programs("one_shot", Collective::all_reduce, 2, 8), costs, 1), 9427 / 8);
}

TEST(Simulate, WindowHoldsUpWhoSendsAhead) {
  // 64 messages of 1 KiB go to a slow reader. With a window of two the writer waits for each of
  // them.
  MachineCosts costs = simple();
  costs.links.fill({5000, 0, 3000, 7000});
  const auto call = programs("one_shot", Collective::broadcast, 2, 64 << 10, 1 << 10);
  EXPECT_GT(price(call, costs, 2, 2 << 10), price(call, costs, 2, 8 << 10));
}

TEST(Simulate, AnswersAreWrittenWhereTheMessageLies) {
  // In two of the four lanes of ring the messages are answers, so expensive writes count only half
  // as often.
  MachineCosts costs = simple();
  const auto call = programs("ring", Collective::all_reduce, 2, 16 << 10);
  const Picoseconds before = price(call, costs);
  costs.links.fill({100, 50, 3000, 7000 + 1024});
  // Each rank writes half of the vector, 8 KiB, once where nobody has written before.
  EXPECT_EQ(price(call, costs), before + 8 * 1024);
}

TEST(Simulate, BuffersBeyondTheCacheCostMore) {
  MachineCosts costs = simple();
  const auto call = programs("one_shot", Collective::broadcast, 2, 1 << 20);
  costs.cache_bytes = 8 << 20;
  const Picoseconds cached = price(call, costs);
  costs.cache_bytes = 256 << 10;
  EXPECT_GT(price(call, costs), cached + 1024 * 1800) << "1 MiB at 2000 in place of 200";
}

TEST(Simulate, ManyPiecesTakeAsLongAsTheirShare) {
  const MachineCosts costs = simple();
  const Picoseconds some = price(programs("ring", Collective::all_reduce, 4, 6 << 20), costs);
  const Picoseconds more = price(programs("ring", Collective::all_reduce, 4, 12 << 20), costs);
  EXPECT_NEAR(static_cast<double>(more) / static_cast<double>(some), 2, 0.02);
}

/// Checks every algorithm, for ranks with and without a core of their own.
template <typename Check>
void for_every_schedule(Check check) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective what : testing::all_collectives())
      for (const int ranks : {2, 3, 4, 8})
        for (const int cores : {2, 8}) {
          if (!algorithm.knows(what, ranks)) continue;
          SCOPED_TRACE(std::string(algorithm.name) + ' ' + std::string(to_string(what)) + ' ' +
                       std::to_string(ranks) + " ranks, " + std::to_string(cores) + " cores");
          check(algorithm.name, what, ranks, cores);
        }
}

TEST(Simulate, MoreBytesNeverTakeClearlyLess) {
  for_every_schedule([](std::string_view algorithm, Collective what, int ranks, int cores) {
    Picoseconds before = 0;
    for (std::size_t bytes = 8; bytes <= 4 << 20; bytes *= 8) {
      const Picoseconds now = price(programs(algorithm, what, ranks, bytes), MachineCosts{}, cores);
      // On a shared core, a rank whose message arrives a little later may save turns.
      EXPECT_GE(now, cores < ranks ? before / 2 : before) << bytes;
      before = now;
    }
  });
}

TEST(Simulate, SlowerLinksNeverTakeLessWhereEachRankHasItsCore) {
  for_every_schedule([](std::string_view algorithm, Collective what, int ranks, int cores) {
    if (cores < ranks) return;
    for (const std::size_t bytes : {8u, 4096u, 1u << 20}) {
      const auto call = programs(algorithm, what, ranks, bytes);
      MachineCosts slow;
      for (LinkCosts& link : slow.links) {
        link.latency *= 4;
        link.payload *= 4;
        link.read_kib *= 4;
      }
      EXPECT_GE(price(call, slow, cores), price(call, MachineCosts{}, cores)) << bytes;
    }
  });
}

/// Returns the price of a broadcast from a rank to two others, which may be on other machines.
Picoseconds price_across(const MachineCosts& costs, std::vector<int> machines) {
  return simulate(programs("one_shot", Collective::broadcast, 3, 1 << 10),
                  cluster_of(costs, std::move(machines), 4, LinkKind::shared_l3, 3 << 16));
}

TEST(Simulate, MessagesOfAMachineFollowEachOtherOnItsLine) {
  MachineCosts costs = simple();
  costs.network_kib = 0;
  const Picoseconds free = price_across(costs, {0, 1, 1});
  costs.network_kib = 1'000'000;
  // Each call sends 2 KiB: the second message of the eighth call has left after 16 times the cost
  // of 1 KiB.
  EXPECT_NEAR(static_cast<double>(price_across(costs, {0, 1, 1})), 2e6, 0.02 * 2e6);
  EXPECT_LT(free, 20'000);
  EXPECT_EQ(price_across(costs, {0, 0, 0}), free) << "no line is needed";
}

TEST(Simulate, SystemCallsOfAMessageCountAtBothEnds) {
  MachineCosts costs = simple();
  costs.network_kib = 0;
  const Picoseconds before = price_across(costs, {0, 1, 1});
  costs.links[static_cast<std::size_t>(LinkKind::other_machine)].message = 8000;
  // The root's calls follow each other, each with two messages; the last message is then received.
  EXPECT_EQ(price_across(costs, {0, 1, 1}), before + 2 * 8000 + 8000 / 8);
  EXPECT_EQ(price_across(costs, {0, 0, 0}), before);
}

TEST(Simulate, RanksOfAMachineHaveItsCores) {
  const Cluster cluster = cluster_of(simple(), {0, 0, 1, 0, 1}, 2, LinkKind::shared_l3, 3 << 16);
  EXPECT_EQ(cluster.core_of, (std::vector<int>{0, 1, 2, 0, 3}));
  EXPECT_EQ(cluster.link_between(0, 3), LinkKind::same_core);
  EXPECT_EQ(cluster.link_between(0, 1), LinkKind::shared_l3);
  EXPECT_EQ(cluster.link_between(0, 2), LinkKind::other_machine);
}

TEST(Simulate, SlowLinksBetweenMachinesMakeHierarchicalCheaperThanARing) {
  // There are two machines with four ranks each.
  constexpr int kRanks = 8;
  const auto of = [&](std::string_view name) {
    CallSignature call;
    call.what = Collective::all_reduce;
    call.count = 64;
    std::vector<Program> all;
    for (int rank = 0; rank < kRanks; ++rank)
      all.push_back(
          compile(testing::algorithm_named(name).plan({.what = Collective::all_reduce,
                                                       .rank = rank,
                                                       .ranks = kRanks,
                                                       .groups = {0, 0, 0, 0, 1, 1, 1, 1}}),
                  call, 1 << 16));
    return all;
  };
  const Cluster cluster =
      cluster_of(MachineCosts{}, {0, 0, 0, 0, 1, 1, 1, 1}, 4, LinkKind::shared_l3, 3 << 16);
  // The hierarchical algorithm has two messages in a row from machine to machine, the ring at least
  // three.
  EXPECT_LT(3 * simulate(of("hierarchical"), cluster), 2 * simulate(of("ring"), cluster));
}

}  // namespace
}  // namespace tutti
