#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support.h"

namespace tutti::testing {
namespace {

TEST(Print, ARingReadsAsItsVerbs) {
  EXPECT_EQ(to_text(algorithm_named("ring").plan({Collective::all_reduce, 1, 2, 0})),
            "all_reduce, rank 1 of 2: 2 chunks of the whole vector, no scratch, widest step 1\n"
            "lane 0, sends on channel 0\n"
            "  0  chunk 1: input[1] -> rank 0\n"
            "lane 1, receives on channel 0, sends on channel 1\n"
            "  0  chunk 0: rank 0 + input[0] -> output[0], rank 0; completes\n"
            "lane 2, receives on channel 1\n"
            "  0  chunk 1: rank 0 -> output[1]; after lane 0 step 0\n");
}

TEST(Print, SlicesScratchAndRootsAreShown) {
  const Algorithm& doubling = algorithm_named("recursive_doubling");
  EXPECT_EQ(
      to_text(doubling.plan({Collective::reduce_scatter, 3, 4, 0})),
      "reduce_scatter, rank 3 of 4: 4 blocks of the call, scratch of 4 chunks, widest step 2\n"
      "lane 0, receives on channel 0, sends on channel 0\n"
      "  0  chunks 0 to 1: input[0] -> rank 1\n"
      "  1  chunks 2 to 3: rank 1 + input[2] -> scratch[2]\n"
      "  2  chunk 2: scratch[2] -> rank 2\n"
      "  3  chunk 3: rank 2 + scratch[3] -> output[3]; completes\n");
  EXPECT_EQ(to_text(algorithm_named("binomial_tree").plan({Collective::broadcast, 0, 2, 1})),
            "broadcast, rank 0 of 2, root 1: 1 chunks of the whole vector, no scratch, widest step "
            "1\n"
            "lane 0, receives on channel 0\n"
            "  0  chunk 0: rank 1 -> output[0]\n");
}

TEST(Print, AMessageOfBlocksOfSeveralPairsSaysHowManyTheyAre) {
  EXPECT_EQ(to_text(algorithm_named("bruck").plan({Collective::all_to_all, 0, 4, 0})),
            "all_to_all, rank 0 of 4: 16 blocks of the call, scratch of 4 chunks, widest step 2\n"
            "lane 0, receives on channel 0, sends on channel 0\n"
            "  0  chunk 1: input[1] -> scratch[0]\n"
            "  1  chunk 3: input[3] -> scratch[1]\n"
            "  2  2 chunks: scratch[0] -> rank 1\n"
            "  3  2 chunks: rank 3 -> scratch[0]\n"
            "  4  chunk 2: input[2] -> scratch[2]\n"
            "  5  chunk 14: scratch[1] -> scratch[3]\n"
            "  6  2 chunks: scratch[2] -> rank 2\n"
            "  7  2 chunks: rank 2 -> scratch[2]\n"
            "  8  chunk 0: input[0] -> output[0]\n"
            "  9  chunk 12: scratch[0] -> output[12]\n"
            " 10  chunk 8: scratch[2] -> output[8]\n"
            " 11  chunk 4: scratch[3] -> output[4]\n");
}

TEST(Print, AStepThatReachesBackSaysHowFar) {
  Schedule schedule;
  schedule.lanes = {{0, 0, {{{{Place::input, 0}}, {{Place::scratch, 0}}, 0, 1, false, {1, 2, 1}}}}};
  EXPECT_NE(to_text(schedule).find("after lane 1 step 2 of 1 piece back\n"), std::string::npos);
}

TEST(Print, EveryScheduleIsValidJsonThatHoldsAllItsNumbers) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective what : all_collectives()) {
      if (!algorithm.knows(what, 5)) continue;
      for (const Schedule& schedule : plan_all(algorithm, what, 5)) {
        const auto json = nlohmann::json::parse(to_json(schedule));
        EXPECT_EQ(json.at("collective"), to_string(what));
        EXPECT_EQ(json.at("layout"), schedule.layout == Layout::whole ? "whole" : "blocks");
        EXPECT_EQ(json.at("rank"), schedule.rank);
        EXPECT_EQ(json.at("ranks"), 5);
        EXPECT_EQ(json.at("root"), 0);
        EXPECT_EQ(json.at("chunks"), schedule.chunks);
        EXPECT_EQ(json.at("scratch_chunks"), schedule.scratch_chunks);
        EXPECT_EQ(json.at("widest"), schedule.widest);
        ASSERT_EQ(json.at("lanes").size(), schedule.lanes.size());
        for (std::size_t lane = 0; lane < schedule.lanes.size(); ++lane) {
          EXPECT_EQ(json["lanes"][lane].at("receives_on"), schedule.lanes[lane].receives_on);
          EXPECT_EQ(json["lanes"][lane].at("sends_on"), schedule.lanes[lane].sends_on);
          EXPECT_EQ(json["lanes"][lane].at("steps").size(), schedule.lanes[lane].steps.size());
        }
      }
    }
}

TEST(Print, AStepAsJsonNamesItsOperands) {
  const Schedule schedule = algorithm_named("ring").plan({Collective::all_reduce, 1, 2, 0});
  const auto lanes = nlohmann::json::parse(to_json(schedule)).at("lanes");
  const auto reduced = lanes[1]["steps"][0];
  EXPECT_EQ(reduced.at("in"), nlohmann::json::parse(R"([{"place": "peer", "index": 0},
                                                       {"place": "input", "index": 0}])"));
  EXPECT_EQ(reduced.at("out"), nlohmann::json::parse(R"([{"place": "output", "index": 0},
                                                        {"place": "peer", "index": 0}])"));
  EXPECT_EQ(reduced.at("completes"), true);
  EXPECT_TRUE(reduced.at("after").is_null());
  EXPECT_EQ(lanes[2]["steps"][0].at("after"),
            nlohmann::json::parse(R"({"lane": 0, "step": 0, "pieces_back": 0})"));
}

TEST(Print, WhatIsNotWellFormedIsPrintedAllTheSame) {
  Schedule schedule;
  schedule.lanes = {{-1, -1, {{{}, {{static_cast<Place>(9), -7}}, -2, 0, false, {}}}}};
  schedule.layout = static_cast<Layout>(9);
  EXPECT_NE(to_text(schedule).find("unknown[-7]"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::accept(to_json(schedule)));
}

TEST(Print, APictureHasABoxForEachStepAndAnArrowForEachMessage) {
  const auto schedules = plan_all(algorithm_named("ring"), Collective::all_reduce, 2);
  const std::string picture = to_dot(schedules);
  EXPECT_NE(picture.find("r1_l1_s0 [label=\"lane 1 step 0\\nchunk 0: rank 0 + input[0] -> "
                         "output[0], rank 0; completes\"];"),
            std::string::npos)
      << picture;
  EXPECT_NE(picture.find("  r0_l0_s0 -> r1_l1_s0 [color=blue];\n"), std::string::npos) << picture;
  EXPECT_NE(picture.find("r1_l0_s0 -> r1_l2_s0 [style=dashed];"), std::string::npos) << picture;
  const auto count = [&](std::string_view what) {
    int found = 0;
    for (auto at = picture.find(what); at != std::string::npos; at = picture.find(what, at + 1))
      ++found;
    return found;
  };
  EXPECT_EQ(count("[label="), 6);
  EXPECT_EQ(count("[color=blue]"), 4);
  EXPECT_EQ(to_dot({}).substr(0, 7), "digraph");
}

}  // namespace
}  // namespace tutti::testing
