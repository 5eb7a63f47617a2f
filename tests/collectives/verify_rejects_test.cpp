// Breaks good schedules in one way at a time. The verifier must reject each of them, and its
// verdict must say where the schedule is broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>

#include <tutti/error.hpp>

#include "support.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Schedules = std::vector<Schedule>;

std::string why(const Schedules& schedules, const VerifyOptions& options = {}) {
  const Verdict verdict = verify(schedules, options);
  EXPECT_EQ(verdict.ok, verdict.why.empty());
  return verdict.why;
}

Schedules planned(std::string_view algorithm, Collective what, int ranks, int root = 0) {
  Schedules schedules = plan_all(algorithm_named(algorithm), what, ranks, root);
  EXPECT_EQ(why(schedules), "") << "the schedule to be broken is not good";
  EXPECT_EQ(why(schedules, {.in_place = true}), "");
  return schedules;
}

/// Returns schedules of two ranks, each of which sends `messages` messages before it receives any.
Schedules eager_pair(int messages) {
  Schedules schedules;
  for (int rank = 0; rank < 2; ++rank) {
    const PlanRequest request{Collective::all_reduce, rank, 2, 0};
    ScheduleBuilder plan(request, messages);
    const Verbs lane = plan.lane();
    for (int chunk = 0; chunk < messages; ++chunk) lane.send(chunk, {1 - rank});
    for (int chunk = 0; chunk < messages; ++chunk)
      lane.reduce_copy(in_rank_order(request, chunk), chunk).completes();
    schedules.push_back(std::move(plan).finish());
  }
  return schedules;
}

/// Returns a broadcast of two ranks whose receiver passes its data through scratch from one lane to
/// another.
Schedules through_scratch(bool reach_back) {
  Schedules schedules{algorithm_named("one_shot").plan({Collective::broadcast, 0, 2, 0})};
  ScheduleBuilder plan({Collective::broadcast, 1, 2, 0}, 1);
  plan.scratch_chunks(1);
  const StepHandle received = plan.lane().step({peer(0)}, {scratch(0)}, 0);
  const StepHandle used = plan.lane().step({scratch(0)}, {output(0)}, 0);
  used.after(received);
  if (reach_back) received.after(used, 1);
  schedules.push_back(std::move(plan).finish());
  return schedules;
}

// --- contributions ---

TEST(VerifyRejects, AMissingContribution) {
  Schedules schedules = planned("one_shot", Collective::all_reduce, 3);
  std::erase(schedules[2].lanes[0].steps[0].out, peer(1));
  std::erase(schedules[1].lanes[0].steps[1].in, peer(2));
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 1"), HasSubstr("chunk 0"),
                                    HasSubstr("contribution of rank 2")));
}

TEST(VerifyRejects, ADoubleContribution) {
  Schedules schedules = planned("ring", Collective::all_reduce, 4);
  Step& step = schedules[2].lanes[1].steps[0];
  step.in.push_back(step.in[1]);
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 2 lane 1 step 0"), HasSubstr("chunk 1"),
                                    HasSubstr("adds rank 2's input twice")));
}

TEST(VerifyRejects, ResultsWhoseBitsWouldDifferBetweenRanks) {
  Schedules schedules = planned("one_shot", Collective::all_reduce, 2);
  auto& in = schedules[1].lanes[0].steps[1].in;
  std::swap(in[0], in[1]);
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank "), HasSubstr("bits would differ")));
}

TEST(VerifyAccepts, AnotherOrderOfReductionWhereOneRankAloneHasTheResult) {
  Schedules schedules = planned("one_shot", Collective::reduce, 3);
  auto& in = schedules[0].lanes[0].steps[0].in;
  std::swap(in[0], in[2]);
  EXPECT_EQ(why(schedules), "");
}

TEST(VerifyRejects, DataOfTheWrongRank) {
  Schedules schedules = planned("all_pairs", Collective::broadcast, 3);
  // Rank 1 gets the chunk that rank 2 should get, and the other way round.
  auto& steps = schedules[0].lanes[0].steps;
  std::swap(steps[0].out.back(), steps[1].out.back());
  EXPECT_NE(why(schedules), "");
  schedules = planned("one_shot", Collective::broadcast, 2, 1);
  schedules[0].root = schedules[1].root = 0;
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 1"), HasSubstr("input holds no chunk 0")));
}

TEST(VerifyRejects, ABarrierThatDoesNotWaitForEveryone) {
  Schedules schedules = planned("recursive_doubling", Collective::barrier, 4);
  for (Schedule& schedule : schedules) {
    schedule.lanes[0].steps.pop_back();
    schedule.lanes[0].steps.back().out.pop_back();
  }
  EXPECT_THAT(why(schedules), HasSubstr("misses the contribution of rank"));
}

// --- completing ---

TEST(VerifyRejects, AResultThatIsCompletedTwice) {
  Schedules schedules = planned("ring", Collective::all_reduce, 3);
  schedules[0].lanes.back().steps[0].completes = true;
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 0 lane 4 step 0"),
                                    HasSubstr("completes rank 2"), HasSubstr("complete already")));
}

TEST(VerifyRejects, APartialResultThatIsCompletedOnItsWay) {
  Schedules schedules = planned("ring", Collective::all_reduce, 3);
  schedules[0].lanes[1].steps[0].completes = true;
  EXPECT_THAT(why(schedules),
              AllOf(HasSubstr("rank 1 lane 2 step 0"), HasSubstr("complete already")));
}

TEST(VerifyRejects, AResultThatIsNeverCompleted) {
  Schedules schedules = planned("binomial_tree", Collective::reduce, 3, 2);
  schedules[2].lanes[0].steps[0].completes = false;
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 2"), HasSubstr("chunk 0 of piece 0"),
                                    HasSubstr("is never completed")));
}

TEST(VerifyRejects, ACompleteChunkThatIsWrittenAgain) {
  Schedules schedules = planned("all_pairs", Collective::all_gather, 2);
  auto& steps = schedules[0].lanes[0].steps;
  steps.push_back(steps[0]);
  steps.back().in = steps.back().out = {output(0)};
  EXPECT_EQ(why(schedules), "") << "a copy onto itself changes nothing";
  schedules = planned("ring", Collective::all_reduce, 2);
  auto& last = schedules[0].lanes[2].steps;
  last.push_back(last[0]);
  last.back().in = {input(0)};
  last.back().after = {};
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 0 lane 2 step 1"),
                                    HasSubstr("writes output[0]"), HasSubstr("complete already")));
}

TEST(VerifyRejects, AnOutputThatIsNeverWritten) {
  Schedules schedules = planned("one_shot", Collective::broadcast, 2);
  schedules[0].lanes[0].steps[0].out = {peer(1)};
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 0"), HasSubstr("is never written")));
  EXPECT_EQ(why(schedules, {.in_place = true}), "") << "in place it is there already";
}

TEST(VerifyRejects, ARankWithoutAnyLane) {
  Schedules schedules = planned("ring", Collective::reduce_scatter, 1);
  schedules[0].lanes.clear();
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 0"), HasSubstr("is never written")));
}

// --- races and memory ---

TEST(VerifyRejects, ARaceBetweenLanesInPlace) {
  Schedules schedules = planned("ring", Collective::all_reduce, 4);
  Step& step = schedules[3].lanes[4].steps[0];
  ASSERT_GE(step.after.lane, 0);
  step.after = {};
  EXPECT_THAT(why(schedules, {.in_place = true}),
              AllOf(HasSubstr("race on rank 3"), HasSubstr("chunk 3"), HasSubstr("lane 0 step 0"),
                    HasSubstr("lane 4 step 0")));
  EXPECT_EQ(why(schedules), "") << "out of place these are different memory";
}

TEST(VerifyRejects, AnAllToAllInPlaceThatReceivesOverWhatIsNotSentYet) {
  Schedules schedules = planned("pairwise", Collective::all_to_all, 3);
  for (Schedule& schedule : schedules)
    for (Step& step : schedule.lanes[1].steps) step.after = {};
  EXPECT_EQ(why(schedules), "");
  EXPECT_THAT(why(schedules, {.in_place = true}), HasSubstr("nothing orders them"));
  // Here the steps are in one lane, but in the wrong order.
  schedules = planned("pairwise", Collective::all_to_all, 2);
  for (Schedule& schedule : schedules) {
    auto& steps = schedule.lanes[1].steps;
    steps.insert(steps.end(), schedule.lanes[0].steps.begin(), schedule.lanes[0].steps.end());
    for (Step& step : steps) step.after = {};
    schedule.lanes.erase(schedule.lanes.begin());
  }
  EXPECT_THAT(why(schedules), HasSubstr("deadlock"));
}

TEST(VerifyRejects, AGatherThatPutsABlockInAnothersPlace) {
  Schedules schedules = planned("one_shot", Collective::gather, 3);
  std::swap(schedules[0].lanes[0].steps[1].in, schedules[0].lanes[0].steps[2].in);
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("expects a message of chunk 1"),
                                    HasSubstr("rank 2 lane 0 step 0 sends chunk 2")));
}

/// Returns a reduce of two ranks whose root copies its input to its output before it reduces the
/// operands `in`.
Schedules copied_first(const std::vector<Operand>& in) {
  Schedules schedules;
  for (int rank = 0; rank < 2; ++rank) {
    ScheduleBuilder plan({Collective::reduce, rank, 2, 0}, 1);
    const Verbs lane = plan.lane();
    if (rank == 0) {
      lane.copy(0);
      lane.reduce_copy(in, 0).completes();
    } else {
      lane.send(0, {0});
    }
    schedules.push_back(std::move(plan).finish());
  }
  return schedules;
}

TEST(VerifyRejects, AnInputInPlaceThatAPremultipliedSumWouldMultiplyTwice) {
  const Schedules schedules = copied_first({input(0), peer(1)});
  EXPECT_EQ(why(schedules), "") << "out of place the input is still there";
  EXPECT_THAT(why(schedules, {.in_place = true}),
              AllOf(HasSubstr("rank 0 lane 0 step 1"), HasSubstr("reads input[0]"),
                    HasSubstr("written over")));
  for (const bool in_place : {false, true})
    EXPECT_EQ(why(copied_first({output(0), peer(1)}), {.in_place = in_place}), "")
        << "the output is read as it is";
}

TEST(VerifyRejects, AnOutputInPlaceThatIsReadAsInputAndWouldNotBeMultiplied) {
  Schedules schedules = copied_first({output(0), peer(1)});
  auto& steps = schedules[0].lanes[0].steps;
  steps.erase(steps.begin());
  for (const bool in_place : {false, true})
    EXPECT_THAT(why(schedules, {.in_place = in_place}),
                AllOf(HasSubstr("rank 0 lane 0 step 0"), HasSubstr("reads output[0]"),
                      HasSubstr("nothing was written")));
}

TEST(VerifyRejects, ARaceBetweenPiecesThatShareScratch) {
  EXPECT_THAT(
      why(through_scratch(false)),
      AllOf(HasSubstr("race on rank 1"), HasSubstr("scratch[0]"), HasSubstr("lane 0 step 0"),
            HasSubstr("lane 1 step 0"), HasSubstr("in piece 2")));
  EXPECT_EQ(why(through_scratch(true)), "");
}

TEST(VerifyRejects, ScratchThatNobodyWrote) {
  Schedules schedules = through_scratch(true);
  schedules[1].scratch_chunks = 2;
  schedules[1].lanes[1].steps[0].in = {scratch(1)};
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 1 lane 1 step 0"), HasSubstr("scratch[1]"),
                                    HasSubstr("nothing was written")));
}

TEST(VerifyRejects, ScratchThatHoldsAnotherChunk) {
  Schedules schedules = planned("recursive_doubling", Collective::reduce_scatter, 4);
  schedules[0].lanes[0].steps[2].in = {scratch(0)};
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 0 lane 0 step 2"),
                                    HasSubstr("expecting chunk 1"), HasSubstr("finds chunk 0")));
}

TEST(VerifyRejects, OutputThatIsReadBeforeItIsWritten) {
  Schedules schedules = planned("recursive_doubling", Collective::all_gather, 4);
  auto& steps = schedules[1].lanes[0].steps;
  steps.erase(steps.begin());
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 1 lane 0 step 0"), HasSubstr("reads output[1]"),
                                    HasSubstr("nothing was written")));
}

TEST(VerifyRejects, WritesToTheInput) {
  Schedules schedules = planned("one_shot", Collective::all_reduce, 2);
  schedules[0].lanes[0].steps[1].out.push_back(input(0));
  for (const bool in_place : {false, true})
    EXPECT_THAT(why(schedules, {.in_place = in_place}),
                AllOf(HasSubstr("rank 0 lane 0 step 1"), HasSubstr("writes to the input")));
}

TEST(VerifyRejects, WritesToAnOutputThatOnlyTheRootHas) {
  Schedules schedules = planned("ring", Collective::reduce, 3);
  schedules[2].lanes[0].steps[0].out.push_back(output(0));
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 2 lane 0 step 0"),
                                    HasSubstr("output holds no chunk 0 on this rank")));
}

TEST(VerifyRejects, OperandsThatOverlap) {
  Schedules schedules = planned("recursive_doubling", Collective::reduce_scatter, 3);
  Step& step = schedules[1].lanes[0].steps[0];
  ASSERT_EQ(step.out, (std::vector<Operand>{scratch(0)}));
  ASSERT_EQ(step.count, 3);
  schedules[1].scratch_chunks = 8;
  Step broken = step;
  broken.out.push_back(scratch(2));
  std::swap(step, broken);
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 1 lane 0 step 0"), HasSubstr("writes twice")));
  step = broken;
  step.in = {scratch(1)};
  EXPECT_THAT(why(schedules), HasSubstr("scratch[1] and scratch[0] overlap"));
}

// --- messages ---

TEST(VerifyRejects, DeadlockUnderTheWindow) {
  EXPECT_EQ(why(eager_pair(2)), "");
  EXPECT_THAT(why(eager_pair(3)),
              AllOf(HasSubstr("deadlock"), HasSubstr("rank 0 lane 0 step 2 (chunk 2"),
                    HasSubstr("rank 1 lane 0 step 2"), HasSubstr("(window 2)")));
  EXPECT_EQ(why(eager_pair(3), {.window = 3}), "");
}

TEST(VerifyRejects, ARingWhoseWindowIsOneMessage) {
  const Schedules schedules = planned("ring", Collective::all_reduce, 9);
  EXPECT_THAT(why(schedules, {.window = 1}), AllOf(HasSubstr("deadlock"), HasSubstr("(window 1)")));
}

TEST(VerifyRejects, LanesThatWaitForEachOther) {
  Schedules schedules = planned("all_pairs", Collective::all_reduce, 2);
  schedules[1].lanes[0].steps[0].after = {2, 0, 0};
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("deadlock"), HasSubstr("rank 1 lane 0 step 0"),
                                    HasSubstr("lane 2 step 0")));
}

TEST(VerifyRejects, AReceiveThatNobodySends) {
  Schedules schedules = planned("one_shot", Collective::all_reduce, 2);
  schedules[0].lanes[0].steps.erase(schedules[0].lanes[0].steps.begin());
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("deadlock"), HasSubstr("rank 1 lane 0 step 1"),
                                    HasSubstr("rank 0 on channel 0, where nobody sends")));
}

TEST(VerifyRejects, AMessageThatNobodyReceives) {
  Schedules schedules = planned("one_shot", Collective::broadcast, 2);
  schedules[1].lanes[0].sends_on = 5;
  schedules[1].lanes[0].steps[0].out.push_back(peer(0));
  EXPECT_THAT(why(schedules, {.pieces = 1, .operations = 1}),
              AllOf(HasSubstr("rank 1 lane 0 step 0"), HasSubstr("to rank 0 on channel 5"),
                    HasSubstr("nobody receives")));
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("deadlock"), HasSubstr("where nobody receives")));
}

// With ordinary messages a window of two would suffice, since a message is released as soon as it
// has been read. The memory of a message that is answered is occupied until the answer has been
// read.
TEST(VerifyRejects, AnswersThatAreReadOnlyAfterMoreThanTheWindowWasSent) {
  const auto lane = [](int first, std::vector<Step> steps) {
    return Lane{first, first, std::move(steps)};
  };
  Schedules schedules(2);
  for (int rank = 0; rank < 2; ++rank) {
    schedules[rank].what = Collective::broadcast;
    schedules[rank].rank = rank;
    schedules[rank].ranks = 2;
    schedules[rank].chunks = 3;
  }
  std::vector<Step> sends, answers, reads;
  for (int chunk = 0; chunk < 3; ++chunk) {
    sends.push_back({{input(chunk)}, {peer(1)}, chunk, 1, false, {}});
    answers.push_back({{peer(0)}, {output(chunk), peer(0)}, chunk, 1, false, {}});
    reads.push_back({{peer(1)}, {output(chunk)}, chunk, 1, false, {}});
  }
  schedules[1].lanes = {lane(0, answers)};
  std::vector<Step> all = sends;
  all.insert(all.end(), reads.begin(), reads.end());
  schedules[0].lanes = {lane(0, all)};
  EXPECT_THAT(why(schedules, {.pieces = 1, .operations = 1}),
              AllOf(HasSubstr("deadlock"), HasSubstr("answers")));
  schedules[0].lanes = {lane(0, sends), lane(0, reads)};
  EXPECT_EQ(why(schedules), "");
}

TEST(VerifyRejects, AMessageThatIsLeftFromThePieceBefore) {
  Schedules schedules = planned("one_shot", Collective::broadcast, 2);
  auto& steps = schedules[0].lanes[0].steps;
  steps.push_back(steps[0]);
  steps.back().out = {peer(1)};
  EXPECT_THAT(why(schedules),
              AllOf(HasSubstr("rank 1 lane 0 step 0"), HasSubstr("piece 1 of operation 0"),
                    HasSubstr("rank 0 lane 0 step 1 sends"), HasSubstr("piece 0 of operation 0")));
}

TEST(VerifyRejects, MessagesWhoseSizeDiffersAtTheTwoEnds) {
  Schedules schedules = planned("recursive_doubling", Collective::all_gather, 8);
  Step& step = schedules[5].lanes[0].steps[3];  // this step sends blocks 4 and 5 to rank 7
  ASSERT_EQ(step.count, 2);
  step.count = 1;
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 7 lane 0 step 4"), HasSubstr("chunks 4 to 5"),
                                    HasSubstr("rank 5 lane 0 step 3 sends chunk 4")));
}

TEST(VerifyRejects, MessagesThatCrossOver) {
  Schedules schedules = planned("all_pairs", Collective::all_reduce, 3);
  auto& lane = schedules[0].lanes[0].steps;
  std::swap(lane[0].out, lane[1].out);
  EXPECT_THAT(why(schedules),
              AllOf(HasSubstr("expects a message of chunk"), HasSubstr("channel 0")));
}

TEST(VerifyRejects, AChannelEndThatTwoLanesUse) {
  Schedules schedules = planned("ring", Collective::all_gather, 3);
  schedules[1].lanes[2].receives_on = 0;
  EXPECT_THAT(why(schedules), HasSubstr("rank 1: lane 2 receives from rank 0 on channel 0, but so "
                                        "does lane 1"));
}

// --- shape ---

TEST(VerifyRejects, FieldsThatMustBeAlikeOnAllRanks) {
  const Schedules good = planned("recursive_doubling", Collective::all_reduce, 4);
  const auto broken = [&](auto change) {
    Schedules schedules = good;
    change(schedules[2]);
    return why(schedules);
  };
  EXPECT_THAT(broken([](Schedule& s) { s.rank = 1; }), HasSubstr("rank 2: rank is 1, expected 2"));
  EXPECT_THAT(broken([](Schedule& s) { s.ranks = 5; }), HasSubstr("rank 2: ranks is 5"));
  EXPECT_THAT(broken([](Schedule& s) { s.chunks = 2; }), HasSubstr("rank 2: chunks is 2"));
  EXPECT_THAT(broken([](Schedule& s) { s.widest = 2; }), HasSubstr("rank 2: widest is 2"));
  EXPECT_THAT(broken([](Schedule& s) { s.root = 2; }), HasSubstr("rank 2: root is 2"));
  EXPECT_THAT(broken([](Schedule& s) { s.layout = Layout::blocks; }), HasSubstr("layout"));
  EXPECT_THAT(broken([](Schedule& s) { s.what = Collective::barrier; }), HasSubstr("collective"));
  EXPECT_THAT(broken([](Schedule& s) { s.scratch_chunks = -1; }), HasSubstr("-1 scratch chunks"));
  EXPECT_THAT(broken([](Schedule& s) { s.lanes[0].sends_on = -1; }), HasSubstr("rank 2 lane 0"));
  EXPECT_THAT(why({}), HasSubstr("no schedules"));
}

TEST(VerifyRejects, WhatIsTooLargeToVerifyIsNotCalledWrong) {
  Schedules schedules = planned("recursive_doubling", Collective::all_reduce, 4);
  EXPECT_FALSE(verify(std::span(schedules).first(3), {}).too_large);
  for (Schedule& schedule : schedules) schedule.scratch_chunks = 1 << 19;
  const Verdict verdict = verify(schedules, {});
  EXPECT_FALSE(verdict.ok);
  EXPECT_TRUE(verdict.too_large);
  EXPECT_THAT(verdict.why, HasSubstr("524288 scratch chunks (at most 262144 can be verified)"));
}

TEST(VerifyRejects, AWidestThatIsNotTheWidestStepOfAnyRank) {
  Schedules schedules = planned("recursive_doubling", Collective::all_gather, 8);
  for (Schedule& schedule : schedules) schedule.widest = 8;
  EXPECT_THAT(why(schedules), HasSubstr("widest is 8, but the widest step of any rank moves 4"));
  for (Schedule& schedule : schedules) schedule.widest = 2;
  EXPECT_THAT(why(schedules), HasSubstr("widest is 2"));
}

TEST(VerifyRejects, NumbersOutOfRange) {
  const Schedules good = planned("binomial_tree", Collective::all_reduce, 4);
  const auto broken = [&](auto change) {
    Schedules schedules = good;
    change(schedules[1].lanes[1].steps[0]);
    const std::string found = why(schedules);
    EXPECT_THAT(found, HasSubstr("rank 1 lane 1 step 0"));
    return found;
  };
  EXPECT_THAT(broken([](Step& s) { s.in.clear(); }), HasSubstr("something to read"));
  EXPECT_THAT(broken([](Step& s) { s.out.clear(); }), HasSubstr("something to read and to write"));
  EXPECT_THAT(broken([](Step& s) { s.in = {peer(1)}; }), HasSubstr("is no peer"));
  EXPECT_THAT(broken([](Step& s) { s.in = {peer(4)}; }), HasSubstr("is no peer"));
  EXPECT_THAT(broken([](Step& s) { s.in = {peer(INT_MIN)}; }), HasSubstr("is no peer"));
  EXPECT_THAT(broken([](Step& s) { s.in = {peer(2), peer(2)}; }), HasSubstr("receives twice"));
  EXPECT_THAT(broken([](Step& s) { s.out = {peer(2), peer(2)}; }), HasSubstr("writes twice"));
  EXPECT_THAT(broken([](Step& s) { s.in = {scratch(0)}; }), HasSubstr("outside of 0 scratch"));
  EXPECT_THAT(broken([](Step& s) { s.out = {output(1)}; }), HasSubstr("names output[1]"));
  EXPECT_THAT(broken([](Step& s) { s.chunk = 1; }), HasSubstr("from chunk 1 of 1"));
  EXPECT_THAT(broken([](Step& s) { s.chunk = INT_MAX; }), HasSubstr("moves 1 chunks"));
  EXPECT_THAT(broken([](Step& s) { s.count = 0; }), HasSubstr("moves 0 chunks"));
  EXPECT_THAT(broken([](Step& s) { s.count = INT_MAX; }), HasSubstr("moves 2147483647 chunks"));
  EXPECT_THAT(broken([](Step& s) { s.after = {1, 0, 0}; }), HasSubstr("no step of another lane"));
  EXPECT_THAT(broken([](Step& s) { s.after = {0, 1, 0}; }), HasSubstr("no step of another lane"));
  EXPECT_THAT(broken([](Step& s) { s.after = {7, 0, 0}; }), HasSubstr("no step of another lane"));
  EXPECT_THAT(broken([](Step& s) { s.after = {0, 0, -1}; }), HasSubstr("-1 pieces back"));
  EXPECT_THAT(broken([](Step& s) { s.after = {0, 0, INT_MAX}; }), HasSubstr("pieces back"));
}

TEST(VerifyRejects, WhatACollectiveThatOnlyMovesDataCannotDo) {
  Schedules schedules = planned("one_shot", Collective::broadcast, 3);
  Step& step = schedules[1].lanes[0].steps[0];
  step.completes = true;
  EXPECT_THAT(why(schedules),
              AllOf(HasSubstr("rank 1 lane 0 step 0"), HasSubstr("does not reduce")));
  step.completes = false;
  step.in.push_back(peer(2));
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 1 lane 0 step 0"), HasSubstr("only moves")));
}

TEST(VerifyRejects, MoreThanItCanHold) {
  Schedules schedules = planned("one_shot", Collective::broadcast, 1);
  schedules[0].chunks = INT_MAX;
  EXPECT_THAT(why(schedules), HasSubstr("2147483647 chunks"));
}

TEST(VerifyRejects, TooManyOperationsToHoldInsteadOfRunningOutOfMemory) {
  EXPECT_THAT(why(planned("ring", Collective::all_reduce, 8), {.operations = 1 << 24}),
              HasSubstr("too many"));
}

TEST(VerifyRejects, StepsOfAnyChunksWhereLengthsDifferOrWhereBuffersSayWhose) {
  Schedules schedules = planned("bruck", Collective::all_to_all, 3);
  schedules[1].lanes[0].steps[0].chunk = kAnyChunk;
  EXPECT_THAT(why(schedules), HasSubstr("rank 1 lane 0 step 0 (1 chunk): names input[5]"));
  schedules = planned("recursive_doubling", Collective::reduce_scatter, 4);
  schedules[3].lanes[0].steps[2].chunk = kAnyChunk;
  EXPECT_THAT(why(schedules), HasSubstr("rank 3 lane 0 step 2 (1 chunk): moves 1 chunks from"));
}

TEST(VerifyRejects, StepsOfAnyChunksWithABufferThatHasNoSuchChunk) {
  const Schedules good = planned("bruck", Collective::all_to_all, 3);
  const auto broken = [&](auto change) {
    Schedules schedules = good;
    Step& step = schedules[0].lanes[0].steps[0];
    step.chunk = kAnyChunk;
    change(step);
    return why(schedules);
  };
  EXPECT_THAT(broken([](Step& s) { s.in = {input(kAnyChunk)}; }),
              AllOf(HasSubstr("rank 0 lane 0 step 0"), HasSubstr("names input[-1]")));
  EXPECT_THAT(broken([](Step& s) {
                s.in = {scratch(0)};
                s.out = {output(kAnyChunk)};
              }),
              AllOf(HasSubstr("rank 0 lane 0 step 0"), HasSubstr("names output[-1]")));
}

TEST(VerifyRejects, BlocksOfAnyPairsThatArePackedInTheWrongOrderOrTooFew) {
  Schedules schedules = planned("bruck", Collective::all_to_all, 4);
  std::vector<Step>& steps = schedules[2].lanes[0].steps;
  ASSERT_EQ(steps[2].chunk, kAnyChunk);
  std::swap(steps[0].out, steps[1].out);
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("rank 3 lane 0 step "), HasSubstr("expecting chunk"),
                                    HasSubstr("but finds chunk")));
  std::swap(steps[0].out, steps[1].out);
  steps[2].count = 1;
  EXPECT_THAT(why(schedules), AllOf(HasSubstr("expects a message of 2 chunks"),
                                    HasSubstr("rank 2 lane 0 step 2 sends 1 chunk")));
}

TEST(VerifyRejects, ChannelsAndOperandsBeyondWhatProgramsCountIn) {
  Schedules schedules = planned("one_shot", Collective::all_reduce, 2);
  schedules[1].lanes[0].receives_on = 1 << 15;
  EXPECT_THAT(why(schedules), HasSubstr("rank 1 lane 0: channel numbers are 0 to 32767"));
  schedules = planned("one_shot", Collective::all_reduce, 2);
  schedules[1].scratch_chunks = 1;
  schedules[1].lanes[0].steps[0].in.assign((1 << 14) + 1, scratch(0));
  EXPECT_THAT(why(schedules), HasSubstr("more than 16384 operands"));
}

TEST(ScheduleBuilder, LeavesWhatIsWrongToTheVerifierAndRefusesWhatItCannotWriteDown) {
  const PlanRequest request{Collective::broadcast, 0, 2, 0};
  ScheduleBuilder plan(request, 1), other(request, 1);
  const Verbs lane = plan.lane(), second = plan.lane(1, 1), elsewhere = other.lane();
  EXPECT_THROW(lane.last(), Error);
  const StepHandle step = lane.copy(0);
  EXPECT_THROW(step.after(elsewhere.copy(0)), Error);
  const StepHandle later = second.send({3, 4}, {7}).completes();
  later.after(step);
  EXPECT_THROW(later.after(step), Error);
  Schedules schedules{std::move(plan).finish(), std::move(other).finish()};
  schedules[1].rank = 1;
  EXPECT_THAT(why(schedules), HasSubstr("rank 0 lane 1 step 0 (chunks 3 to 6)"));
  EXPECT_THROW((void)verify(schedules, {.window = 0}), Error);
}

}  // namespace
}  // namespace tutti::testing
