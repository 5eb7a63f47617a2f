#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "command.h"
#include "tests/collectives/schedule_texts.h"
#include "tests/topology/topology_files.h"

namespace tutti::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(TuttiPlan, FailsWhereItCannotWrite) {
  // The text of 64 ranks does not fit the buffer of standard output.
  for (const char* const printed : {"--help", "all_reduce ring -n 4", "all_reduce ring -n 64",
                                    "all_reduce ring -n 64 --json"}) {
    Command command({"sh", "-c", fmt::format("{} {} > /dev/full", TUTTI_PLAN, printed)});
    EXPECT_EQ(command.wait(), 1) << printed;
    EXPECT_THAT(command.err(), HasSubstr("tutti-plan: cannot write to standard output")) << printed;
    EXPECT_THAT(command.err(), Not(HasSubstr("No space left"))) << printed;
  }
  for (const std::string tool : {TUTTI_PLAN, TUTTI_PERF, TUTTI_RUN})
    for (const char* const option : {"--help", "--version"}) {
      Command asked({"sh", "-c", tool + " " + option + " > /dev/full"});
      EXPECT_EQ(asked.wait(), 1) << tool << " " << option;
      EXPECT_THAT(asked.err(), testing::HasSubstr(": cannot write to standard output"));
    }
}

TEST(TuttiPlan, WithoutArgumentsShowsWhichAlgorithmKnowsWhat) {
  Command command({TUTTI_PLAN});
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out(), AllOf(HasSubstr("all_reduce"), HasSubstr("reduce_scatter"),
                                   HasSubstr("\nbinomial_tree"), HasSubstr("\nring")));
}

TEST(TuttiPlan, RefusesACollectiveBeforeACommand) {
  Command command({TUTTI_PLAN, "all_reduce", "verify", "algorithm.xml"});
  EXPECT_EQ(command.wait(), 2);
  EXPECT_THAT(command.err(), HasSubstr("'all_reduce' is no argument of this command"));
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
  EXPECT_THAT(complaint({"all_to_all", "pairwise", "--groups", "0,0,1,1"}),
              HasSubstr("--groups: pairwise plans alike whatever the groups are"));
  EXPECT_THAT(complaint({"reduce", "ring", "--groups", "0,0,,1,1"}),
              HasSubstr("an item of 0,0,,1,1 is empty"));
  for (const char* const list : {"-n", "--sizes", "-a"})
    for (const char* const given : {",2", "2,", "2,,4", ""})
      EXPECT_THAT(complaint({"sweep", "all_reduce", list, given}), HasSubstr("is empty"));
  EXPECT_THAT(complaint({"sweep", "all_reduce", "-n", "1"}), HasSubstr("not in range"));
  EXPECT_THAT(complaint({"sweep", "all_reduce", "-n", "two"}), HasSubstr("two"));
  EXPECT_THAT(complaint({"sweep", "all_reduce", "--sizes", "-1"}), HasSubstr("negative"));
  EXPECT_THAT(complaint({"-n", "8", "explain", "all_reduce"}),
              HasSubstr("-n stands before the command: write it behind"));
  for (const char* const taken : {"ring", "auto"})
    EXPECT_THAT(complaint({"synthesize", "all_gather", "--name", taken}),
                HasSubstr(std::string("--name: tutti uses ") + taken + " itself"));
}

/// A folder for the files of a test, which goes with it.
class TuttiPlanFiles : public testing::Test {
 protected:
  TuttiPlanFiles() {
    std::string name = testing::TempDir() + "plan_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~TuttiPlanFiles() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  std::filesystem::path folder_;
};

TEST_F(TuttiPlanFiles, AFileOfSchedulesIsProvedOrRejectedWithTheCounterExample) {
  const std::string good = write("good.xml", schedule_texts::kMsccl);
  Command proved({TUTTI_PLAN, "verify", good});
  EXPECT_EQ(proved.wait(), 0) << proved.err();
  EXPECT_THAT(proved.out(), AllOf(HasSubstr("'halves' (msccl), all_reduce of 2 ranks"),
                                  HasSubstr("for calls of 64 to 4096 bytes")));
  EXPECT_THAT(proved.err(), HasSubstr("proved"));

  std::string text = schedule_texts::kMsccl;
  text.replace(text.find("type=\"rrcs\""), 11, "type=\"rcs\"");
  const std::string wrong = write("wrong.xml", text);
  Command rejected({TUTTI_PLAN, "verify", wrong});
  EXPECT_EQ(rejected.wait(), 1);
  EXPECT_THAT(rejected.err(), HasSubstr("rejected: rank"));
  Command as_json({TUTTI_PLAN, "verify", wrong, "--json"});
  EXPECT_EQ(as_json.wait(), 1);
  const auto report = nlohmann::json::parse(as_json.out());
  EXPECT_EQ(report.at("proved"), false);
  EXPECT_THAT(report.at("why").get<std::string>(), HasSubstr("misses the contribution"));

  Command malformed({TUTTI_PLAN, "verify", write("bad.xml", "<algo>\n<")});
  EXPECT_EQ(malformed.wait(), 2);
  EXPECT_THAT(malformed.err(), HasSubstr("bad.xml, line 2"));
}

TEST_F(TuttiPlanFiles, AFileIsConvertedToJsonThatIsReadAgain) {
  const std::string packets = write("packets.json", schedule_texts::kMscclpp);
  Command json({TUTTI_PLAN, "convert", packets});
  EXPECT_EQ(json.wait(), 0) << json.err();
  const auto object = nlohmann::json::parse(json.out());
  EXPECT_EQ(object.at("name"), "packets");
  EXPECT_EQ(object.at("schedules").size(), 2u);
  Command again({TUTTI_PLAN, "verify", write("own.json", json.out())});
  EXPECT_EQ(again.wait(), 0) << again.err();
  EXPECT_THAT(again.out(), HasSubstr("'packets' (tutti)"));
  Command text({TUTTI_PLAN, "convert", packets, "--to", "text"});
  EXPECT_EQ(text.wait(), 0);
  EXPECT_THAT(text.out(), StartsWith("all_reduce, rank 0 of 2"));
  Command own({TUTTI_PLAN, "all_gather", "ring", "-n", "3", "--json"});
  EXPECT_EQ(own.wait(), 0);
  Command of_own({TUTTI_PLAN, "verify", write("ring.json", own.out())});
  EXPECT_EQ(of_own.wait(), 0) << of_own.err();
  Command msccl({TUTTI_PLAN, "convert", (folder_ / "ring.json").string(), "--to", "msccl"});
  EXPECT_EQ(msccl.wait(), 0) << msccl.err();
  Command of_msccl({TUTTI_PLAN, "verify", write("ring.xml", msccl.out())});
  EXPECT_EQ(of_msccl.wait(), 0) << of_msccl.err();
  EXPECT_THAT(of_msccl.out(), HasSubstr("'ring' (msccl), all_gather of 3 ranks"));
  Command other({TUTTI_PLAN, "convert", packets, "--to", "pdf"});
  EXPECT_EQ(other.wait(), 2);
  // Both files in one folder would have the same name otherwise.
  Command named({TUTTI_PLAN, "convert", packets, "--name", "parcels"});
  EXPECT_EQ(named.wait(), 0) << named.err();
  EXPECT_EQ(nlohmann::json::parse(named.out()).at("name"), "parcels");
  Command taken({TUTTI_PLAN, "convert", packets, "--name", "ring"});
  EXPECT_EQ(taken.wait(), 2);
  EXPECT_THAT(taken.err(), HasSubstr("tutti uses ring itself"));
}

TEST_F(TuttiPlanFiles, ATopologyIsShownAsTextJsonAndPicture) {
  const std::string node = write("node.xml", kSmallTopology);
  Command text({TUTTI_PLAN, "show", node});
  EXPECT_EQ(text.wait(), 0) << text.err();
  EXPECT_THAT(text.out(), HasSubstr("GPU 1 (0000:03:00.0), 12 GB/s; nvlink GPU 0 40 GB/s\n"));
  const std::string fabric = write("fabric.json", R"({"nodes": 4, "topology": "node.xml"})");
  Command nodes({TUTTI_PLAN, "show", fabric});
  EXPECT_EQ(nodes.wait(), 0) << nodes.err();
  EXPECT_THAT(nodes.out(), StartsWith("4 nodes, 3 rails, 4 nodes a leaf, 3 leaves, 3 spines"));
  Command json({TUTTI_PLAN, "show", fabric, "--all", "--json"});
  EXPECT_EQ(json.wait(), 0);
  EXPECT_EQ(nlohmann::json::parse(json.out()).at("machines"), 4);
  Command dot({TUTTI_PLAN, "show", node, "--dot"});
  EXPECT_EQ(dot.wait(), 0);
  EXPECT_THAT(dot.out(), StartsWith("graph topology {"));
  Command none({TUTTI_PLAN, "show", write("none.json", R"({"nodes": 4})")});
  EXPECT_EQ(none.wait(), 2);
  EXPECT_THAT(none.err(), HasSubstr("none.json: the member 'topology' is missing"));
}

TEST(TuttiPlan, ExplainsWhatEachAlgorithmWouldTakeTheFastestFirst) {
  Command command({TUTTI_PLAN, "explain", "all_reduce", "-n", "4", "--size", "1M", "--json"});
  EXPECT_EQ(command.wait(), 0) << command.err();
  const auto rows = nlohmann::json::parse(command.out());
  ASSERT_GT(rows.size(), 4u);
  int chosen = 0;
  for (std::size_t at = 0; at < rows.size(); ++at) {
    EXPECT_EQ(rows[at].at("bytes"), 1 << 20);
    chosen += rows[at].at("chosen").get<bool>() ? 1 : 0;
    if (at > 0) {
      EXPECT_LE(rows[at - 1].at("predicted_us"), rows[at].at("predicted_us"));
    }
  }
  EXPECT_EQ(chosen, 1);
}

TEST(TuttiPlan, SimulatesWhatItExplainsAndSweepsOverSizesAndRanks) {
  Command one({TUTTI_PLAN, "simulate", "all_reduce", "ring", "-n", "4", "-s", "1M", "--json"});
  EXPECT_EQ(one.wait(), 0) << one.err();
  const double us = nlohmann::json::parse(one.out()).at("predicted_us").get<double>();
  Command csv({TUTTI_PLAN, "sweep", "all_reduce", "-n", "2,4", "--sizes", "1K,1M", "-a", "ring"});
  EXPECT_EQ(csv.wait(), 0) << csv.err();
  EXPECT_THAT(csv.out(), StartsWith("collective,algorithm,ranks,bytes,predicted_us"));
  EXPECT_EQ(std::count(csv.out().begin(), csv.out().end(), '\n'), 5);
  EXPECT_THAT(csv.out(), HasSubstr(fmt::format("all_reduce,ring,4,1048576,{:.3f},", us)));
  // Ranks of two machines send over a network, which takes longer.
  Command far({TUTTI_PLAN, "simulate", "all_reduce", "ring", "-n", "4", "-s", "1M",
               "--ranks-per-machine", "2", "--json"});
  EXPECT_EQ(far.wait(), 0) << far.err();
  EXPECT_GT(nlohmann::json::parse(far.out()).at("predicted_us").get<double>(), us);
  // A ring leaves each machine once, whatever the numbers of its ranks.
  Command turns({TUTTI_PLAN, "simulate", "all_reduce", "ring", "-n", "4", "-s", "1M",
                 "--ranks-per-machine", "2", "--by-turns", "--json"});
  EXPECT_EQ(turns.wait(), 0) << turns.err();
  EXPECT_EQ(nlohmann::json::parse(turns.out()).at("predicted_us"),
            nlohmann::json::parse(far.out()).at("predicted_us"));
  Command alone({TUTTI_PLAN, "simulate", "all_reduce", "ring", "--by-turns"});
  EXPECT_EQ(alone.wait(), 2);
  EXPECT_THAT(alone.err(), HasSubstr("--ranks-per-machine"));
  for (const char* option : {"--cores", "--ranks-per-machine"}) {
    Command both({TUTTI_PLAN, "simulate", "all_reduce", "ring", "--topology", "x", option, "2"});
    EXPECT_EQ(both.wait(), 2);
    EXPECT_THAT(both.err(), HasSubstr("excludes"));
  }
  Command unknown({TUTTI_PLAN, "simulate", "all_reduce", "rong"});
  EXPECT_EQ(unknown.wait(), 2);
  EXPECT_THAT(unknown.err(), HasSubstr("'rong' is unknown"));
  Command unable({TUTTI_PLAN, "simulate", "barrier", "ring"});
  EXPECT_EQ(unable.wait(), 2);
  EXPECT_THAT(unable.err(), HasSubstr("ring cannot serve barrier"));
}

}  // namespace
}  // namespace tutti::tools
