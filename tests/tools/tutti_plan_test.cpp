#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "command.h"

namespace tutti::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(TuttiPlan, FailsWhereItCannotWrite) {
  Command command({"sh", "-c", TUTTI_PLAN " all_reduce ring -n 4 > /dev/full"});
  EXPECT_EQ(command.wait(), 1);
  EXPECT_THAT(command.err(), testing::HasSubstr("tutti-plan: cannot write to"));
}

TEST(TuttiPlan, WithoutArgumentsShowsWhichAlgorithmKnowsWhat) {
  Command command({TUTTI_PLAN});
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out(), AllOf(HasSubstr("all_reduce"), HasSubstr("reduce_scatter"),
                                   HasSubstr("\nbinomial_tree"), HasSubstr("\nring")));
}

TEST(TuttiPlan, SaysItsVersion) {
  Command command({TUTTI_PLAN, "--version"});
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_EQ(command.out(), std::string(version()) + "\n");
}

TEST(TuttiPlan, ShowsEveryRanksScheduleAndProvesIt) {
  Command command({TUTTI_PLAN, "all_reduce", "one_shot", "-n", "3"});
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out(),
              AllOf(StartsWith("all_reduce, rank 0 of 3"), HasSubstr("\nall_reduce, rank 2 of 3"),
                    HasSubstr("rank 0 + input[0] + rank 2 -> output[0]; completes")));
  EXPECT_THAT(command.err(), HasSubstr("proved"));
}

TEST(TuttiPlan, JsonIsOneArrayOfTheRanksThatWereAskedFor) {
  Command all({TUTTI_PLAN, "broadcast", "binomial_tree", "-n", "5", "--root", "3", "--json"});
  EXPECT_EQ(all.wait(), 0) << all.err();
  const auto schedules = nlohmann::json::parse(all.out());
  ASSERT_EQ(schedules.size(), 5u);
  EXPECT_EQ(schedules[4].at("rank"), 4);
  EXPECT_EQ(schedules[4].at("root"), 3);
  Command one({TUTTI_PLAN, "broadcast", "-n", "5", "--rank", "2", "--json"});
  EXPECT_EQ(one.wait(), 0) << one.err();
  EXPECT_EQ(nlohmann::json::parse(one.out()).at(0).at("rank"), 2);
}

TEST(TuttiPlan, DotIsOnePictureOfTheRanksThatWereAskedFor) {
  Command all({TUTTI_PLAN, "all_reduce", "hierarchical", "--groups", "0,0,1,1", "--dot"});
  EXPECT_EQ(all.wait(), 0) << all.err();
  EXPECT_THAT(all.out(), AllOf(StartsWith("digraph"), HasSubstr("subgraph cluster_3")));
  Command one({TUTTI_PLAN, "all_reduce", "ring", "--rank", "1", "--dot"});
  EXPECT_EQ(one.wait(), 0) << one.err();
  EXPECT_THAT(one.out(), AllOf(HasSubstr("cluster_1"), Not(HasSubstr("cluster_0"))));
}

TEST(TuttiPlan, AWindowThatIsTooSmallIsRejectedWithTheCircleOfWaitingLanes) {
  Command command({TUTTI_PLAN, "all_reduce", "ring", "-n", "9", "--window", "1", "--quiet"});
  EXPECT_EQ(command.wait(), 1);
  EXPECT_EQ(command.out(), "");
  EXPECT_THAT(command.err(), AllOf(HasSubstr("rejected"), HasSubstr("deadlock: rank 0 lane 0")));
}

TEST(TuttiPlan, WhatIsTooLargeForTheVerifierHasAStatusOfItsOwn) {
  Command command({TUTTI_PLAN, "all_to_all", "pairwise", "-n", "512", "--quiet"});
  EXPECT_EQ(command.wait(), 3);
  EXPECT_THAT(command.err(), AllOf(HasSubstr("not verified: "), Not(HasSubstr("rejected"))));
}

TEST(TuttiPlan, WrongArgumentsNameWhatWouldBeRight) {
  const auto complaint = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TUTTI_PLAN);
    Command command(arguments);
    EXPECT_EQ(command.wait(), 2);
    EXPECT_EQ(command.out(), "");
    return command.err();
  };
  EXPECT_THAT(complaint({"all_redcue"}), HasSubstr("there are: all_reduce broadcast"));
  EXPECT_THAT(complaint({"barrier", "ring"}), HasSubstr("these do: one_shot"));
  EXPECT_THAT(complaint({"reduce", "ring", "--root", "4"}), HasSubstr("--root 4 is no rank of 4"));
  EXPECT_THAT(complaint({"--groups", "0,0,1,1"}), HasSubstr("--groups requires collective"));
  EXPECT_THAT(complaint({"--json"}), HasSubstr("--json requires collective"));
  EXPECT_THAT(complaint({"reduce", "ring", "--rank", "-1"}),
              HasSubstr("--rank -1 is no rank of 4"));
  EXPECT_THAT(complaint({"reduce", "ring", "--rank", "-2"}),
              HasSubstr("--rank -2 is no rank of 4"));
  EXPECT_THAT(complaint({"all_gather", "ring", "--root", "1"}), HasSubstr("has no root"));
  EXPECT_NE(complaint({"reduce", "ring", "-n", "0"}), "");
  EXPECT_THAT(complaint({"reduce", "hierarchical", "--groups", "0,1"}),
              HasSubstr("2 numbers for 4 ranks"));
  EXPECT_THAT(complaint({"reduce", "ring", "--json", "--dot"}), HasSubstr("excludes"));
}

}  // namespace
}  // namespace tutti::tools
