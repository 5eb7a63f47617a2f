// Tests of schedules in the form of rounds: what they expand to, and how little memory they take.
#include "collectives/schedule/rounds.h"

#include <gtest/gtest.h>

#include <tutti/error.hpp>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/stages.h"
#include "collectives/schedule/program.h"
#include "collectives/schedule/rank_arithmetic.h"
#include "support.h"

namespace tutti::testing {
namespace {

using collectives::expand;
using collectives::Repeat;
using collectives::Rounds;

std::size_t steps_written(const Rounds& rounds) {
  std::size_t steps = 0;
  for (const Lane& lane : rounds.written.lanes) steps += lane.steps.size();
  return steps;
}

/// Returns the number of steps to which the rounds expand.
std::int64_t steps_said(const Rounds& rounds) {
  auto steps = static_cast<std::int64_t>(steps_written(rounds));
  for (const Repeat& repeat : rounds.repeats)
    steps += std::int64_t{repeat.steps} * (repeat.count - 1);
  return steps;
}

/// Returns the bytes of memory that the rounds hold.
std::size_t bytes_of(const Rounds& rounds) {
  std::size_t bytes = sizeof rounds + rounds.repeats.size() * sizeof(Repeat) +
                      rounds.written.lanes.size() * sizeof(Lane);
  for (const Lane& lane : rounds.written.lanes)
    for (const Step& step : lane.steps)
      bytes += sizeof step + (step.in.size() + step.out.size()) * sizeof(Operand);
  return bytes;
}

/// Returns one rank's schedule of a ring, written step by step, with more ranks than have stages of
/// their own.
Schedule plain_ring(const PlanRequest& request) {
  using namespace collectives;
  const Group all = Group::all(request);
  Shares shares;  // chunk c belongs to rank c
  for (int rank = 0; rank < request.ranks; ++rank) shares.push_back({rank});
  const int last = request.ranks - 1, next = all.next(), previous = all.previous();
  ScheduleBuilder plan(request, request.ranks);
  const Verbs lane = plan.lane();
  if (request.what == Collective::all_gather) {
    lane.copy_send(request.rank, {next});
    for (int stage = 1; stage < last; ++stage)
      lane.receive_send(previous, ring_chunk(request.rank, stage, request.ranks), {next});
    lane.receive(previous, ring_chunk(request.rank, last, request.ranks));
    return std::move(plan).finish();
  }
  ring_reduce_scatter(lane, all, shares, {Place::input, Place::output, true});
  if (request.what == Collective::all_reduce) {
    const Verbs gather = plan.lane(1, 1);
    ring_all_gather(gather, all, shares);
    gather.starts_after(lane);
  }
  return std::move(plan).finish();
}

TEST(Rounds, OfARingExpandToItsPlainScheduleForEveryRankAndRankCountTo64) {
  const Algorithm& ring = algorithm_named("ring");
  for (const Collective what :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter})
    for (int ranks = 1; ranks <= 64; ++ranks)
      for (int rank = 0; rank < ranks; ++rank) {
        const PlanRequest request{what, rank, ranks, 0};
        const Rounds rounds = ring.plan_in_rounds(request);
        ASSERT_EQ(expand(rounds), ring.plan(request));
        if (ranks <= 8) {
          ASSERT_TRUE(rounds.repeats.empty()) << "each stage has a lane of its own";
        } else {
          ASSERT_EQ(expand(rounds), plain_ring(request)) << to_string(what) << " " << ranks;
          ASSERT_EQ(steps_written(rounds), what == Collective::all_reduce ? 6u : 3u);
        }
      }
}

TEST(Rounds, OfARingTakeTheSameForAHundredThousandRanksAsForNine) {
  constexpr int kRanks = 100'000;
  const Algorithm& ring = algorithm_named("ring");
  for (const Collective what :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    const int halves = what == Collective::all_reduce ? 2 : 1;
    const Rounds few = ring.plan_in_rounds({what, 7, 9, 0});
    const Rounds many = ring.plan_in_rounds({what, 77'777, kRanks, 0});
    EXPECT_EQ(steps_said(few), 9 * halves);
    EXPECT_EQ(steps_said(many), std::int64_t{kRanks} * halves);
    EXPECT_EQ(steps_written(many), steps_written(few));
    EXPECT_EQ(bytes_of(many), bytes_of(few));
    EXPECT_LT(bytes_of(many), 2048u);
    const Schedule plain = expand(many);
    for (const Lane& lane : plain.lanes) {
      ASSERT_EQ(lane.steps.size(), static_cast<std::size_t>(kRanks));
      for (std::size_t stage = 1; stage < lane.steps.size(); ++stage)
        ASSERT_EQ(lane.steps[stage].chunk,
                  collectives::wrap(lane.steps[stage - 1].chunk - 1, kRanks));
    }
  }
}

TEST(Rounds, MoveChunksAndPeersAroundAndOrdersToTheSameRound) {
  ScheduleBuilder plan(PlanRequest{Collective::all_reduce, 0, 5, 0}, 3);
  const Verbs first = plan.lane(), second = plan.lane(1, 1);
  first.copy(0);
  const StepHandle sent = first.send(2, {4});
  const StepHandle kept = first.step({scratch(1)}, {output(2)}, 2);
  second.receive(3, 1).after(kept);
  second.copy(0).after(sent);
  const Rounds rounds{std::move(plan).finish(),
                      {{.lane = 0, .first = 1, .steps = 2, .count = 3, .shift = {1, 2}},
                       {.lane = 1, .first = 0, .steps = 1, .count = 3, .shift = {-1, -1}}}};

  ScheduleBuilder expected(PlanRequest{Collective::all_reduce, 0, 5, 0}, 3);
  const Verbs one = expected.lane(), two = expected.lane(1, 1);
  one.copy(0);
  std::vector<StepHandle> sends, keeps;
  for (const auto& [chunk, peer] : {std::pair{2, 4}, {0, 1}, {1, 3}}) {
    sends.push_back(one.send(chunk, {peer}));
    keeps.push_back(one.step({scratch(1)}, {output(chunk)}, chunk));
  }
  two.receive(3, 1).after(keeps[0]);
  two.receive(2, 0).after(keeps[1]);
  two.receive(1, 2).after(keeps[2]);
  two.copy(0).after(sends[2]);
  EXPECT_EQ(expand(rounds), std::move(expected).finish());
}

// Every type that holds a number of ranks, chunks, steps or operands has more than 16 bits.
TEST(ManyRanks, EveryAlgorithmPlansAndCompilesOneOfAHundredThousand) {
  constexpr int kRanks = 100'000, kRank = 70'001;
  for (const Algorithm& algorithm : algorithms())
    for (const Collective what : all_collectives()) {
      if (!algorithm.knows(what, kRanks) || what == Collective::all_to_all) continue;
      const Schedule schedule = algorithm.plan({what, kRank, kRanks, kRank});
      CallSignature call;
      call.what = what;
      call.root = schedule.root;
      call.count = 1;
      const Program program =
          compile(schedule, call, 64 * static_cast<std::size_t>(schedule.widest));
      std::size_t peers = 0;
      for (const Lane& lane : schedule.lanes)
        for (const Step& step : lane.steps)
          for (const auto* operands : {&step.in, &step.out})
            for (const Operand& operand : *operands) {
              ASSERT_GE(operand.index, 0) << algorithm.name;
              ASSERT_LT(operand.index, kRanks) << algorithm.name;
              peers += operand.place == Place::peer;
            }
      ASSERT_GT(peers, 0u) << algorithm.name;
      for (const auto* ports : {&program.sends, &program.receives})
        for (const Program::Port& port : *ports) ASSERT_NE(port.peer, kRank) << algorithm.name;
      std::size_t operands = 0;
      for (const Program::Step& step : program.steps) operands += step.inputs + step.outputs;
      ASSERT_EQ(operands, program.operands.size());
    }
}

TEST(ManyRanks, AnAllToAllOfMoreThanHavePairsThatCanBeNumberedIsUnavailable) {
  for (const Algorithm& algorithm : algorithms()) {
    if (!algorithm.knows(Collective::all_to_all, 46'341)) continue;
    try {
      algorithm.plan({Collective::all_to_all, 46'340, 46'341, 0});
      ADD_FAILURE() << algorithm.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unavailable);
      EXPECT_STREQ(error.what(),
                   "all_to_all: 46341 ranks have 2147488281 blocks, and tutti numbers those of at "
                   "most 46340 ranks; split the communicator");
    }
  }
  EXPECT_EQ(collectives::block_count(Collective::all_to_all, 46'340), 2'147'395'600);
  const Schedule schedule =
      algorithm_named("pairwise").plan({Collective::all_to_all, 46'339, 46'340, 0});
  for (const Lane& lane : schedule.lanes)
    for (const Step& step : lane.steps) ASSERT_GE(step.chunk, 0);
}

}  // namespace
}  // namespace tutti::testing
