// Checks the properties of each algorithm besides correctness: how many messages, lanes and bytes
// it takes.
#include "collectives/algorithms/algorithms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>

#include <tutti/error.hpp>

#include "collectives/planning/select.h"
#include "support.h"

namespace tutti::testing {
namespace {

bool is_peer(const Operand& operand) { return operand.place == Place::peer; }

/// Returns the number of chunks that a rank sends in all messages of a piece.
int chunks_sent(const Schedule& schedule) {
  int chunks = 0;
  for (const Lane& lane : schedule.lanes)
    for (const Step& step : lane.steps)
      chunks +=
          step.count * static_cast<int>(std::count_if(step.out.begin(), step.out.end(), is_peer));
  return chunks;
}

int steps_of(const Schedule& schedule) {
  int steps = 0;
  for (const Lane& lane : schedule.lanes) steps += static_cast<int>(lane.steps.size());
  return steps;
}

TEST(Algorithms, AllHaveNamesOfTheirOwnAndKnowAtLeastOneCollective) {
  std::set<std::string_view> names;
  for (const Algorithm& algorithm : algorithms()) {
    EXPECT_TRUE(names.insert(algorithm.name).second) << algorithm.name;
    const auto all = all_collectives();
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](Collective what) {
      return algorithm.knows(what, 4);
    })) << algorithm.name;
  }
}

TEST(Algorithms, OneShotOfTwoRanksIsOneMessageEachWayAndOneReduction) {
  for (const Schedule& schedule :
       plan_all(algorithm_named("one_shot"), Collective::all_reduce, 2)) {
    ASSERT_EQ(schedule.lanes.size(), 1u);
    EXPECT_EQ(schedule.lanes[0].steps.size(), 2u);
    EXPECT_EQ(chunks_sent(schedule), 1);
  }
}

TEST(Algorithms, ARingAllReduceSendsEveryChunkTwiceButOneOfThem) {
  for (int ranks = 2; ranks <= 64; ++ranks)
    for (const Schedule& schedule :
         plan_all(algorithm_named("ring"), Collective::all_reduce, ranks)) {
      EXPECT_EQ(schedule.chunks, ranks);
      EXPECT_EQ(chunks_sent(schedule), 2 * (ranks - 1));
    }
}

TEST(Algorithms, ARingHasALaneForEachStageUpToEightRanksAndTwoBeyond) {
  const Algorithm& ring = algorithm_named("ring");
  for (int ranks = 2; ranks <= 8; ++ranks) {
    const Schedule schedule = ring.plan({Collective::all_reduce, 1, ranks, 0});
    EXPECT_EQ(int(schedule.lanes.size()), 2 * ranks - 1);
    EXPECT_EQ(steps_of(schedule), 2 * ranks - 1) << "completing and sending on are one step";
  }
  EXPECT_EQ(ring.plan({Collective::all_reduce, 1, 9, 0}).lanes.size(), 2u);
}

TEST(Algorithms, AllPairsSendsNoMoreThanARing) {
  for (int ranks = 2; ranks <= 64; ++ranks)
    for (const Collective what :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter})
      EXPECT_EQ(chunks_sent(algorithm_named("all_pairs").plan({what, 0, ranks, 0})),
                chunks_sent(algorithm_named("ring").plan({what, 0, ranks, 0})));
}

TEST(Algorithms, AnAllPairsBroadcastHasTheRootSendTheBufferOnce) {
  for (int ranks = 2; ranks <= 64; ++ranks)
    for (const Schedule& schedule :
         plan_all(algorithm_named("all_pairs"), Collective::broadcast, ranks, ranks - 1)) {
      const bool is_root = schedule.rank == ranks - 1;
      EXPECT_EQ(chunks_sent(schedule), is_root ? schedule.chunks : schedule.chunks - 1);
    }
}

TEST(Algorithms, RecursiveDoublingTakesLogarithmicallyManySteps) {
  for (int ranks = 2; ranks <= 64; ++ranks)
    for (const Schedule& schedule :
         plan_all(algorithm_named("recursive_doubling"), Collective::all_reduce, ranks)) {
      const bool power = std::has_single_bit(static_cast<unsigned>(ranks));
      EXPECT_LE(steps_of(schedule), std::bit_width(static_cast<unsigned>(ranks)) + !power);
    }
}

TEST(Algorithms, ATreeNodeReducesItsChildrenInOneStepAndPassesResultsOnInAnother) {
  for (int ranks = 2; ranks <= 64; ++ranks)
    for (const Schedule& schedule :
         plan_all(algorithm_named("binomial_tree"), Collective::all_reduce, ranks)) {
      EXPECT_EQ(schedule.lanes.size(), schedule.rank == 0 ? 1u : 2u);
      for (const Lane& lane : schedule.lanes) EXPECT_EQ(lane.steps.size(), 1u);
    }
}

int messages_sent(const Schedule& schedule) {
  int messages = 0;
  for (const Lane& lane : schedule.lanes)
    for (const Step& step : lane.steps)
      messages += static_cast<int>(std::count_if(step.out.begin(), step.out.end(), is_peer));
  return messages;
}

TEST(Algorithms, DoubleBinaryTreesSendNoMoreThanARingAndFromEveryRankAboutAlike) {
  for (int ranks = 2; ranks <= 64; ++ranks) {
    int all = 0;
    for (const Schedule& schedule :
         plan_all(algorithm_named("double_binary_tree"), Collective::all_reduce, ranks)) {
      EXPECT_EQ(schedule.chunks, 2);
      // Half of the buffer goes up and down each tree: a rank sends to two parents, and to two
      // children in the one tree where it is an inner node.
      EXPECT_LE(chunks_sent(schedule), 4);
      all += chunks_sent(schedule);
    }
    EXPECT_EQ(all, 2 * 2 * (ranks - 1)) << "each tree has ranks - 1 edges, used up and down";
  }
}

TEST(Algorithms, HalvingDoublingSendsARingsBytesInLogarithmicallyManyMessages) {
  for (const int ranks : {2, 4, 8, 16, 32, 64}) {
    const int rounds = std::countr_zero(static_cast<unsigned>(ranks));
    for (const Schedule& schedule :
         plan_all(algorithm_named("halving_doubling"), Collective::all_reduce, ranks)) {
      EXPECT_EQ(schedule.chunks, ranks);
      EXPECT_EQ(chunks_sent(schedule), 2 * (ranks - 1));
      EXPECT_EQ(messages_sent(schedule), 2 * rounds);
    }
  }
  for (int ranks = 3; ranks <= 64; ++ranks)
    for (const Schedule& schedule :
         plan_all(algorithm_named("halving_doubling"), Collective::all_reduce, ranks))
      EXPECT_LE(chunks_sent(schedule), 4 * schedule.chunks) << "twice the buffer each way";
}

TEST(Algorithms, BruckSendsEachBlockOnceInLogarithmicallyManyRounds) {
  for (int ranks = 2; ranks <= 64; ++ranks)
    for (const Schedule& schedule :
         plan_all(algorithm_named("bruck"), Collective::all_gather, ranks)) {
      EXPECT_EQ(chunks_sent(schedule), ranks - 1);
      EXPECT_LE(messages_sent(schedule), 2 * std::bit_width(static_cast<unsigned>(ranks - 1)));
    }
}

TEST(Algorithms, ABruckAllToAllSendsOneMessageARoundWithTheBlocksWhoseDistanceHasItsPowerOfTwo) {
  for (int ranks = 2; ranks <= 64; ++ranks) {
    int hops = 0;
    for (unsigned distance = 1; distance < unsigned(ranks); ++distance)
      hops += std::popcount(distance);
    for (const Schedule& schedule :
         plan_all(algorithm_named("bruck"), Collective::all_to_all, ranks)) {
      EXPECT_EQ(messages_sent(schedule), std::bit_width(unsigned(ranks - 1)));
      EXPECT_EQ(chunks_sent(schedule), hops);
      EXPECT_EQ(schedule.scratch_chunks, hops);
      EXPECT_LE(schedule.widest, (ranks + 1) / 2);
    }
  }
}

TEST(Algorithms, AScatterAllGatherBroadcastHasTheRootSendTheBufferOnce) {
  for (int ranks = 2; ranks <= 64; ++ranks)
    for (const Schedule& schedule :
         plan_all(algorithm_named("scatter_all_gather"), Collective::broadcast, ranks, ranks / 2)) {
      const bool is_root = schedule.rank == ranks / 2;
      EXPECT_EQ(is_root ? chunks_sent(schedule) : schedule.chunks, schedule.chunks);
    }
}

TEST(Algorithms, AKnomialTreeHasHalfTheLevelsOfABinomialOne) {
  for (const int ranks : {4, 16, 64}) {
    const auto root = [&](const char* name) {
      return algorithm_named(name).plan({Collective::broadcast, 0, ranks, 0});
    };
    const int levels = std::countr_zero(static_cast<unsigned>(ranks));
    EXPECT_EQ(messages_sent(root("binomial_tree")), levels);
    EXPECT_EQ(messages_sent(root("knomial_tree")), 3 * levels / 2);
  }
}

int messages_received(const Schedule& schedule) {
  int messages = 0;
  for (const Lane& lane : schedule.lanes)
    for (const Step& step : lane.steps)
      messages += static_cast<int>(std::count_if(step.in.begin(), step.in.end(), is_peer));
  return messages;
}

TEST(Algorithms, ATreeGathersInLogarithmicallyManyMessagesAndOneMoreWhereASubtreeWraps) {
  for (int ranks = 2; ranks <= 64; ++ranks)
    for (const int root : {0, 1, ranks - 1}) {
      const auto schedules =
          plan_all(algorithm_named("binomial_tree"), Collective::gather, ranks, root);
      EXPECT_LE(messages_received(schedules[root]),
                std::bit_width(static_cast<unsigned>(ranks - 1)) + (root > 0));
      for (const Schedule& schedule : schedules) {
        if (schedule.rank == root) continue;
        EXPECT_LE(schedule.lanes[0].steps.size(), 2 * std::bit_width(unsigned(ranks)) + 3u);
      }
    }
}

TEST(Algorithms, AnAllToAllSendsEveryForeignBlockOnceAndInNoScratch) {
  for (const std::string_view name : {"pairwise", "all_pairs"})
    for (int ranks = 2; ranks <= 64; ++ranks)
      for (const Schedule& schedule :
           plan_all(algorithm_named(name), Collective::all_to_all, ranks)) {
        EXPECT_EQ(chunks_sent(schedule), ranks - 1);
        EXPECT_EQ(messages_received(schedule), ranks - 1);
        EXPECT_EQ(schedule.scratch_chunks, 0);
      }
}

TEST(Algorithms, DirectOnesMoveOneBlockAMessageAndOnlyThoseThatTheirRankKnowsTheLengthOf) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective what : {Collective::gather, Collective::scatter, Collective::all_to_all})
      for (int ranks = 1; ranks <= 64; ++ranks) {
        if (!algorithm.direct || !algorithm.knows(what, ranks)) continue;
        for (const Schedule& schedule :
             plan_all(algorithm, what, ranks, collectives::has_root(what) * (ranks / 2)))
          for (const Lane& lane : schedule.lanes)
            for (const Step& step : lane.steps) {
              ASSERT_EQ(step.count, 1) << algorithm.name;
              ASSERT_TRUE(
                  collectives::length_known(collectives::rank_call_of(schedule), step.chunk));
            }
      }
}

TEST(Algorithms, EveryCollectiveOfBlocksHasADirectOneOfTheTablesChoice) {
  for (const Collective what : {Collective::gather, Collective::scatter, Collective::all_to_all})
    for (const int ranks : {1, 2, 3, 8, 64})
      for (const char* forced : {"", "binomial_tree", "one_shot", "pairwise"}) {
        const Choice choice = choose({what, 0, ranks, 2, 1 << 16, true}, forced);
        EXPECT_TRUE(algorithms()[choice.algorithm].direct) << to_string(what) << " " << forced;
        EXPECT_TRUE(algorithms()[choice.algorithm].knows(what, ranks));
      }
}

TEST(Algorithms, ChosenOnesFitMessagesThatHoldLessThanALineOfEachRank) {
  constexpr std::size_t kMessage = 4096;
  for (const Collective what : all_collectives())
    for (const int ranks : {65, 128, 129})
      for (const std::size_t bytes : {0u, 64u, 1u << 10, 64u << 10, 4u << 20}) {
        const Choice choice = choose({what, bytes, ranks, 2, kMessage}, "");
        const Schedule plan = algorithms()[choice.algorithm].plan({what, 0, ranks, 0});
        EXPECT_LE(static_cast<std::size_t>(plan.widest), kMessage / 64) << to_string(what);
      }
  try {
    choose({Collective::all_gather, 1, 100, 2, kMessage}, "recursive_doubling");
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string_view(error.what())
                  .find("moves 99 chunks in one step; messages of 4096 bytes hold 64"),
              std::string_view::npos)
        << error.what();
  }
}

TEST(Algorithms, BlocksOfAFewLinesAreSwappedByManyRanksThroughBruckWhereAllKnowTheirLength) {
  const auto chosen = [](std::size_t bytes, int ranks, bool pair_lengths) {
    return algorithms()[choose({Collective::all_to_all, bytes, ranks, 2, 1 << 16, pair_lengths}, "")
                            .algorithm]
        .name;
  };
  EXPECT_EQ(chosen(64, 64, false), "bruck");
  EXPECT_EQ(chosen(64, 64, true), "pairwise");
  EXPECT_EQ(chosen(64, 8, false), "pairwise");
  EXPECT_EQ(chosen(16, 64, false), "pairwise");
  EXPECT_EQ(chosen(4096, 64, false), "pairwise");
}

TEST(Algorithms, OneRankCopiesItsInput) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective what : all_collectives()) {
      if (!algorithm.knows(what, 1)) continue;
      const Schedule schedule = algorithm.plan({what, 0, 1, 0});
      ASSERT_EQ(steps_of(schedule), 1) << algorithm.name;
      EXPECT_EQ(schedule.lanes[0].steps[0].in, (std::vector<Operand>{{Place::input, 0}}));
      EXPECT_EQ(schedule.lanes[0].steps[0].out, (std::vector<Operand>{{Place::output, 0}}));
      EXPECT_EQ(schedule.lanes[0].steps[0].completes, collectives::reduces(what));
    }
}

}  // namespace
}  // namespace tutti::testing
