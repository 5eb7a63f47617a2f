// Tests which messages may be zero-copy: in tutti's algorithms, and in schedules that were made to
// test the rules.
#include "collectives/schedule/zero_copy.h"

#include <gtest/gtest.h>

#include "collectives/algorithms/algorithms.h"
#include "collectives/planning/select.h"

namespace tutti::collectives {
namespace {

Schedule planned(const char* algorithm, Collective what, int rank, int ranks) {
  return algorithms()[algorithm_index(algorithm)].plan({what, rank, ranks, 0});
}

ZeroCopySource first_source(const Schedule& schedule) { return zero_copy_sources(schedule)[0][0]; }

TEST(ZeroCopySources, AContributionThatComesBackIsLentInPlaceAndAnswered) {
  for (const char* algorithm : {"ring", "all_pairs"}) {
    const ZeroCopySource source = first_source(planned(algorithm, Collective::all_reduce, 0, 2));
    EXPECT_EQ(source.operand, 0) << algorithm;
    EXPECT_TRUE(source.in_place) << algorithm;
    EXPECT_TRUE(source.answered) << algorithm;
  }
}

TEST(ZeroCopySources, AContributionThatTravelsRoundTheRingIsLentButNotAnswered) {
  const ZeroCopySource source = first_source(planned("ring", Collective::all_reduce, 0, 4));
  EXPECT_EQ(source.operand, 0);
  EXPECT_TRUE(source.in_place);
  EXPECT_FALSE(source.answered) << "the result comes from another rank";
}

// The engine posts a step that receives nothing before it computes.
TEST(ZeroCopySources, ASumOfOwnBuffersIsNotLentFromTheOutputThatKeepsIt) {
  ScheduleBuilder plan({Collective::all_reduce, 0, 2}, 1);
  plan.scratch_chunks(1);
  const Verbs lane = plan.lane();
  lane.step({peer(1)}, {scratch(0)}, 0);
  lane.reduce_copy_send({input(0), scratch(0)}, 0, {1}).completes();
  lane.reduce_copy_send({input(0), peer(1)}, 0, {1});
  const auto sources = zero_copy_sources(std::move(plan).finish())[0];
  EXPECT_EQ(sources[1].operand, -1);
}

TEST(ZeroCopySources, AnInputThatIsReducedInPlaceBeforeItIsReadIsNotLentInPlace) {
  const ZeroCopySource source = first_source(planned("one_shot", Collective::all_reduce, 0, 2));
  EXPECT_EQ(source.operand, 0);
  EXPECT_FALSE(source.in_place);
}

TEST(ZeroCopySources, BlocksThatAreExchangedAreNotLentInPlace) {
  const Schedule schedule = planned("pairwise", Collective::all_to_all, 0, 4);
  const auto all = zero_copy_sources(schedule);
  int sources = 0;
  for (std::size_t lane = 0; lane < all.size(); ++lane)
    for (const ZeroCopySource& source : all[lane]) {
      sources += source.operand >= 0 ? 1 : 0;
      EXPECT_FALSE(source.in_place) << "lane " << lane;
    }
  EXPECT_EQ(sources, 3);
}

TEST(ZeroCopySources, WhatIsPassedOnIsLentFromTheOutputThatKeepsIt) {
  const Schedule schedule = planned("ring", Collective::all_gather, 0, 3);
  const ZeroCopySource own = zero_copy_sources(schedule)[0][0];
  EXPECT_EQ(own.operand, 0);
  EXPECT_TRUE(own.in_place) << "its own block is written by nobody else";
  const ZeroCopySource passed_on = zero_copy_sources(schedule)[1][0];
  ASSERT_EQ(passed_on.operand, 1);
  EXPECT_EQ(schedule.lanes[1].steps[0].out[0].place, Place::output);
}

TEST(ZeroCopySources, AContributionWithTwoReadersIsNotLentInPlace) {
  ScheduleBuilder plan({Collective::all_reduce, 0, 3, 0}, 1);
  plan.lane().send(0, {1, 2});
  plan.lane(1, 1).receive(1, 0);
  const ZeroCopySource source = first_source(std::move(plan).finish());
  EXPECT_EQ(source.operand, 0);
  EXPECT_FALSE(source.in_place);
}

TEST(ZeroCopySources, AnOutputThatIsUsedBeforeIsNotOfferedForTheAnswer) {
  for (const bool used : {false, true}) {
    ScheduleBuilder plan({Collective::all_reduce, 0, 2, 0}, 1);
    plan.lane().send(0, {1});
    if (used) plan.lane(2, 2).copy(0);
    plan.lane(1, 1).receive(1, 0);
    EXPECT_EQ(first_source(std::move(plan).finish()).answered, !used);
  }
}

TEST(ZeroCopySources, AnOutputThatIsWrittenLaterIsNotLent) {
  for (const bool rewritten : {false, true}) {
    ScheduleBuilder plan({Collective::broadcast, 1, 3, 0}, 1);
    const Verbs lane = plan.lane();
    lane.receive_send(0, 0, {2});
    if (rewritten) lane.receive(0, 0);
    EXPECT_EQ(first_source(std::move(plan).finish()).operand, rewritten ? -1 : 1);
  }
}

TEST(ZeroCopySources, AreNotLookedForAmongVeryManyRanks) {
  const int most = kMostZeroCopyRanks;
  EXPECT_EQ(first_source(planned("ring", Collective::all_reduce, 0, most)).operand, 0);
  EXPECT_EQ(first_source(planned("ring", Collective::all_reduce, 0, most + 1)).operand, -1);
}

}  // namespace
}  // namespace tutti::collectives
