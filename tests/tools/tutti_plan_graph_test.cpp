// Tests tutti-plan explain, simulate and sweep with --topology.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "plan_folder.h"

namespace tutti::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// Has a fabric of 64 nodes of three GPUs.
class TuttiPlanGraph : public PlanFolder {
 protected:
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Runs tutti-plan on the fabric; `out` is what it printed.
  int run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TUTTI_PLAN);
    arguments.insert(arguments.end(), {"--topology", fabric_});
    Command command(arguments);
    const int status = command.wait();
    out_ = command.out();
    err_ = command.err();
    return status;
  }

  std::string fabric_ = write("fabric.json",
                              R"({"nodes": 64, "topology": "node.xml", "nodes_per_leaf": 16,
        "oversubscription": 2, "hop_us": 0.5})");
  std::string out_, err_;
};

TEST_F(TuttiPlanGraph, SimulateSaysTimeLoadsAndBottleneck) {
  ASSERT_EQ(run({"simulate", "all_reduce", "ring", "-n", "192", "-s", "1M,16M"}), 0) << err_;
  EXPECT_THAT(out_, AllOf(StartsWith("all_reduce on "), HasSubstr("64 nodes of 3 GPUs, 12 leaves"),
                          HasSubstr("the bottleneck is "), HasSubstr("spine"),
                          HasSubstr("the busiest one is busy")));
  EXPECT_EQ(err_, "") << "nothing is said on the way where there is no terminal";
  ASSERT_EQ(run({"simulate", "all_reduce", "hierarchical", "--nodes", "8", "-s", "1M", "--json"}),
            0)
      << err_;
  const auto row = nlohmann::json::parse(out_);
  EXPECT_EQ(row.at("ranks"), 24) << "all GPUs";
  const double us = row.at("predicted_us").get<double>();
  EXPECT_GE(us, row.at("at_least_us").get<double>());
  EXPECT_NEAR(row.at("algorithm_gb_per_s").get<double>(), 1048.576 / us, 1e-6);
  double parts = 0;
  for (const auto& part : row.at("parts_us")) parts += part.get<double>();
  EXPECT_NEAR(parts, us, 1e-3 * us);
  EXPECT_THAT(row.at("accuracy").get<std::string>(), testing::AnyOf("exact", "approximate"));
  EXPECT_EQ(row.at("accuracy") == "exact", row.at("reasons").empty());
  for (const auto& load : row.at("links")) {
    EXPECT_LE(load.at("busy").get<double>(), 1.001);
    EXPECT_GT(load.at("busy").get<double>(), 0);
  }
}

TEST_F(TuttiPlanGraph, SimulateWritesAPictureAndATimelineOfTheFirstRanks) {
  const std::string svg = (folder_ / "time.svg").string(), trace = (folder_ / "t.json").string();
  ASSERT_EQ(run({"simulate", "all_reduce", "double_binary_tree", "-s", "64K,1M,16M", "--svg", svg,
                 "--trace", trace, "--trace-ranks", "2"}),
            0)
      << err_;
  EXPECT_THAT(read("time.svg"), AllOf(StartsWith("<svg"), HasSubstr("double_binary_tree"),
                                      HasSubstr("16 MiB"), HasSubstr("<polyline")));
  const auto events = nlohmann::json::parse(read("t.json")).at("traceEvents");
  std::vector<int> ranks;
  for (const auto& event : events) {
    if (event.at("ph") != "X") continue;
    ranks.push_back(event.at("pid").get<int>());
    EXPECT_GE(event.at("dur").get<double>(), 0);
  }
  EXPECT_TRUE(std::count(ranks.begin(), ranks.end(), 0) > 0);
  EXPECT_TRUE(std::count(ranks.begin(), ranks.end(), 1) > 0);
  EXPECT_EQ(std::count_if(ranks.begin(), ranks.end(), [](int rank) { return rank > 1; }), 0);
}

TEST_F(TuttiPlanGraph, WhatIsWrongIsSaidBeforeAnythingIsComputed) {
  EXPECT_EQ(run({"simulate", "all_reduce", "ring", "--svg", "/nowhere/a.svg"}), 2);
  EXPECT_THAT(err_, HasSubstr("cannot write /nowhere/a.svg"));
  EXPECT_EQ(run({"sweep", "all_reduce", "-n", "2", "--svg", "/nowhere/a.svg"}), 2);
  EXPECT_EQ(out_, "") << "it is known before anything is computed";
  EXPECT_EQ(run({"sweep", "all_reduce", "-n", "2,4000"}), 2);
  EXPECT_THAT(err_, HasSubstr("4000 ranks, but the fabric has 192 GPUs"));
  EXPECT_EQ(out_, "") << "it is known before anything is computed";
  for (const char* size : {"-1", "-4K", "-16M"}) {
    EXPECT_EQ(run({"simulate", "all_reduce", "ring", std::string("--size=") + size}), 2);
    EXPECT_THAT(err_, HasSubstr(std::string(size) + " is negative"));
  }
}

TEST_F(TuttiPlanGraph, ExplainAndSweepCompareAlgorithms) {
  ASSERT_EQ(run({"explain", "all_reduce", "-n", "24", "--size", "1M", "--json"}), 0) << err_;
  const auto rows = nlohmann::json::parse(out_);
  ASSERT_GT(rows.size(), 4u);
  for (std::size_t at = 1; at < rows.size(); ++at)
    EXPECT_LE(rows[at - 1].at("predicted_us"), rows[at].at("predicted_us"));
  const std::string svg = (folder_ / "ranks.svg").string();
  ASSERT_EQ(run({"sweep", "all_reduce", "-n", "3,12,96", "-s", "1M", "-a", "ring,hierarchical",
                 "--svg", svg}),
            0)
      << err_;
  EXPECT_THAT(out_, StartsWith("collective,algorithm,ranks,bytes,predicted_us,bus_gb_per_s,"));
  EXPECT_EQ(std::count(out_.begin(), out_.end(), '\n'), 7);
  EXPECT_THAT(read("ranks.svg"), AllOf(HasSubstr("hierarchical"), HasSubstr(">ranks<")));
}

TEST_F(TuttiPlanGraph, PartsOfATimeAreNoneNegativeAndSumUpWhereRepeatsAreLeftOut) {
  ASSERT_EQ(run({"simulate", "broadcast", "binomial_tree", "-n", "48", "-s", "64M", "--json",
                 "--message-bytes", "64K", "--node-latency-us", "0", "--window", "3"}),
            0)
      << err_;
  const auto row = nlohmann::json::parse(out_);
  double sum = 0;
  for (const auto& [name, part] : row.at("parts_us").items()) {
    ASSERT_TRUE(part.is_number()) << name;
    EXPECT_GE(part.get<double>(), 0) << name;
    sum += part.get<double>();
  }
  EXPECT_NEAR(sum, row.at("predicted_us").get<double>(), 1e-3 * sum);
}

TEST_F(TuttiPlanGraph, ATimelineIsBoundedForAllOfItsRanksTogether) {
  const std::string trace = (folder_ / "trace.json").string();
  ASSERT_EQ(run({"simulate", "all_reduce", "ring", "-n", "24", "-s", "512M", "--message-bytes",
                 "16K", "--trace", trace, "--trace-ranks", "24"}),
            0)
      << err_;
  const std::string text = read("trace.json");
  std::size_t steps = 0;
  for (std::size_t at = text.find("\"X\""); at != std::string::npos;
       at = text.find("\"X\"", at + 1))
    ++steps;
  EXPECT_GT(steps, 90'000u);
  EXPECT_LE(steps, 100'000u);
}

TEST_F(TuttiPlanGraph, ABarrierMovesNothing) {
  ASSERT_EQ(run({"explain", "barrier", "-n", "6", "--json"}), 0) << err_;
  for (const auto& row : nlohmann::json::parse(out_)) EXPECT_EQ(row.at("bytes"), 0);
}

TEST_F(TuttiPlanGraph, NodesOfALeafThatTheFileNamesStay) {
  fabric_ = write("four.json", R"({"nodes": 4, "topology": "node.xml", "nodes_per_leaf": 4})");
  ASSERT_EQ(run({"simulate", "all_reduce", "ring", "--nodes", "8", "-s", "1M"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("8 nodes of 3 GPUs, 6 leaves"));
  fabric_ = write("all.json", R"({"nodes": 4, "topology": "node.xml"})");
  ASSERT_EQ(run({"simulate", "all_reduce", "ring", "--nodes", "8", "-s", "1M"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("8 nodes of 3 GPUs, 3 leaves"));
}

TEST_F(TuttiPlanGraph, WhatCannotBeSimulatedIsSaidAtOnce) {
  EXPECT_EQ(run({"simulate", "all_reduce", "ring", "-n", "193"}), 2);
  EXPECT_THAT(err_, HasSubstr("193 ranks, but the fabric has 192 GPUs"));
  EXPECT_EQ(run({"simulate", "all_reduce", "ring", "-n", "99999999999999"}), 2);
  EXPECT_EQ(run({"simulate", "all_reduce", "ring", "-s", "999999999T"}), 2);
  EXPECT_EQ(run({"simulate", "all_reduce", "ring", "--copy-gb-per-s", "0"}), 2);
  EXPECT_EQ(run({"simulate", "all_reduce", "ring", "--step-us", "nan"}), 2);
  EXPECT_EQ(run({"simulate", "all_reduce", "ring", "--step-us", "1e300"}), 2);
  EXPECT_EQ(run({"simulate", "all_reduce", "ring", "--window", "1"}), 2);
  EXPECT_EQ(run({"simulate", "barrier", "ring"}), 2);
  EXPECT_THAT(err_, HasSubstr("ring cannot serve barrier"));
  EXPECT_EQ(run({"simulate", "all_reduce", "rong"}), 2);
  EXPECT_EQ(run({"simulate", "all_reduce", "one_shot", "--nodes", "30000", "-s", "8"}), 2);
  EXPECT_THAT(err_, HasSubstr("choose another algorithm or fewer ranks"));
  ASSERT_EQ(
      run({"sweep", "all_reduce", "-n", "30000", "--nodes", "10000", "-s", "8", "-a", "one_shot"}),
      0);
  EXPECT_EQ(std::count(out_.begin(), out_.end(), '\n'), 1) << "the head of the table alone";
  EXPECT_THAT(err_, HasSubstr("one_shot of 30000 ranks, 8 bytes: not simulated: the schedules of"));
  fabric_ = write("none.json", R"({"nodes": 0, "topology": "node.xml"})");
  EXPECT_EQ(run({"simulate", "all_reduce", "ring"}), 2);
  EXPECT_THAT(err_, HasSubstr("no whole number from 1 to"));
}

TEST(TuttiPlan, WithoutATopologyNeedsOneForManyRanksAndItsOptions) {
  Command many({TUTTI_PLAN, "simulate", "all_reduce", "ring", "-n", "1025"});
  EXPECT_EQ(many.wait(), 2);
  EXPECT_THAT(many.err(), HasSubstr("1025 ranks: without --topology"));
  Command option({TUTTI_PLAN, "simulate", "all_reduce", "ring", "--nodes", "4"});
  EXPECT_EQ(option.wait(), 2);
  EXPECT_THAT(option.err(), AllOf(HasSubstr("--nodes requires --topology"), Not(HasSubstr("us,"))));
}

}  // namespace
}  // namespace tutti::tools
