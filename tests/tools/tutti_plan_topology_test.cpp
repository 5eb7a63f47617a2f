// Tests of tutti-plan show and synthesize.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "plan_folder.h"
#include "tests/topology/fake_sys.h"

namespace tutti::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class TuttiPlanTopology : public PlanFolder {
 protected:
  /// Runs the tool and checks its exit status.
  static std::string output(std::vector<std::string> arguments, int status = 0) {
    arguments.insert(arguments.begin(), TUTTI_PLAN);
    Command command(arguments);
    EXPECT_EQ(command.wait(), status) << command.err();
    return status == 0 ? command.out() : command.err();
  }
};

TEST_F(TuttiPlanTopology, IsShownWithPathsRingsAndTrees) {
  const std::string text = output({"show", node_});
  EXPECT_THAT(text, AllOf(HasSubstr("nvlink GPU 0 40 GB/s\n"), HasSubstr("NVL 40/1"),
                          HasSubstr("\nrings    "), HasSubstr("each from GPU 0 alone")));
  EXPECT_THAT(output({"show", node_, "--root", "2"}), HasSubstr("each from GPU 2 alone"));
  EXPECT_THAT(output({"show", node_, "--graph"}), Not(HasSubstr("rings")));
  const auto json = nlohmann::json::parse(output({"show", node_, "--json"}));
  EXPECT_EQ(json.at("plan").at("rings").at("list")[0].at("gpus").size(), 3U);
  EXPECT_THAT(output({"show", node_, "--svg"}), StartsWith("<svg "));
  EXPECT_THAT(output({"show", node_, "--svg", "--json"}, 2), HasSubstr("excludes"));
  for (const char* const root : {"-1", "99"})
    EXPECT_THAT(output({"show", node_, "--root", root}, 2), HasSubstr("there is no GPU"));
  for (const char* const graph : {"--graph", "--dot", "--svg", "--all"})
    EXPECT_THAT(output({"show", node_, graph, "--root", "1"}, 2), HasSubstr("excludes"));
  EXPECT_THAT(output({"show", node_, "--dot", "--nodes", "2"}, 2), HasSubstr("add --all"));
  EXPECT_THAT(output({"synthesize", "all_reduce", "--topology", node_, "--root", "1"}, 2),
              HasSubstr("all_reduce has no root"));
}

TEST_F(TuttiPlanTopology, OfThisMachineNeedsNoFile) {
  EXPECT_THAT(output({"show", "--graph"}),
              AllOf(StartsWith("this machine, told by "), HasSubstr("cpu ")));
  const test::FakeSys sys("plan-show");
  test::add_five_gpus(sys);
  EXPECT_THAT(output({"show", "--sys", sys.path(), "--graph"}), HasSubstr("0000:1d:00.0"));
  EXPECT_THAT(output({"show", node_, "--sys", sys.path()}, 2), HasSubstr("a file is shown"));
  // The file that it writes describes the topology that it shows.
  const std::string xml = output({"show", "--sys", sys.path(), "--xml"});
  const std::string file = write("machine.xml", xml);
  EXPECT_EQ(output({"show", file, "--xml"}), xml);
  EXPECT_EQ(output({"show", file, "--json"}), output({"show", "--sys", sys.path(), "--json"}));
  EXPECT_THAT(output({"show", "--xml", "--json"}, 2), HasSubstr("excludes"));
  EXPECT_THAT(output({"show", "--sys", file}, 2), HasSubstr("is no folder"));
  EXPECT_THAT(output({"show", ""}, 2), HasSubstr("the name is empty"));
  EXPECT_THAT(output({"show", node_, "--xml", "--nodes", "2"}, 2), HasSubstr("excludes"));
  Command noted({TUTTI_PLAN, "show", "--sys", sys.path(), "--xml"});
  EXPECT_EQ(noted.wait(), 0);
  EXPECT_THAT(noted.err(), AllOf(StartsWith("a copy of /sys, "), HasSubstr("NVML is not asked")));
}

TEST_F(TuttiPlanTopology, IsThatOfTheVariableWhereNoFileIsNamed) {
  const auto with = [](const std::string& file, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"/usr/bin/env", "TUTTI_TOPOLOGY_FILE=" + file, TUTTI_PLAN});
    return arguments;
  };
  Command named(with(node_, {"show", "--graph"}));
  EXPECT_EQ(named.wait(), 0) << named.err();
  EXPECT_THAT(named.out(), StartsWith("the topology of TUTTI_TOPOLOGY_FILE, " + node_ + "\n"));
  EXPECT_THAT(named.out(), HasSubstr("nvlink GPU 0 40 GB/s\n"));
  Command missing(with("/nowhere.xml", {"show"}));
  EXPECT_EQ(missing.wait(), 2);
  EXPECT_THAT(missing.err(), HasSubstr("TUTTI_TOPOLOGY_FILE: the topology is '/nowhere.xml'"));
  Command synthesized(with(node_, {"synthesize", "broadcast"}));
  EXPECT_EQ(synthesized.wait(), 0) << synthesized.err();
  EXPECT_THAT(synthesized.out(), HasSubstr("\"node_broadcast\""));
  EXPECT_THAT(synthesized.err(),
              StartsWith("the topology of TUTTI_TOPOLOGY_FILE, " + node_ + "\n"));
}

TEST_F(TuttiPlanTopology, OfSeveralNodesHasRingsAlongTheirRails) {
  EXPECT_THAT(output({"show", node_, "--nodes", "4"}),
              AllOf(StartsWith("4 nodes, 3 rails"), HasSubstr("passes by all 4 nodes on one rail"),
                    HasSubstr("port ")));
  const std::string fabric = write("fabric.json", R"({"nodes": 2, "topology": "node.xml"})");
  EXPECT_THAT(output({"show", fabric}), HasSubstr("passes by all 2 nodes on one rail"));
  EXPECT_THAT(output({"show", fabric, "--nodes", "4"}, 2), HasSubstr("the file says how many"));
  const std::string alone = write("alone.xml", "<system><cpu numaid=\"0\"/></system>");
  EXPECT_THAT(output({"show", alone, "--nodes", "4"}, 2), HasSubstr("has no port"));
  EXPECT_THAT(output({"show", alone}), HasSubstr("this topology has no GPUs"));
}

TEST_F(TuttiPlanTopology, HasSchedulesThatAreProvedAndRead) {
  for (const std::string collective :
       {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce"}) {
    Command command({TUTTI_PLAN, "synthesize", collective, "--topology", node_});
    EXPECT_EQ(command.wait(), 0) << command.err();
    EXPECT_THAT(command.err(), AllOf(HasSubstr("proved"), HasSubstr("times synthesized")));
    const std::string file = write(collective + ".json", command.out());
    EXPECT_THAT(output({"verify", file}),
                AllOf(HasSubstr("'node_" + collective + "' (tutti), " + collective),
                      HasSubstr("of 3 ranks")));
  }
}

TEST_F(TuttiPlanTopology, PricesWhatIsSynthesizedBesideTheAlgorithms) {
  const auto json = nlohmann::json::parse(
      output({"synthesize", "all_reduce", "--topology", node_, "--prices", "--json"}));
  const auto& rows = json.at("prices");
  EXPECT_EQ(rows[0].at("algorithm"), "synthesized");
  EXPECT_THAT(rows.dump(), HasSubstr("ring in the order of a ring"));
  for (std::size_t at = 1; at < rows.size(); ++at)
    EXPECT_LE(rows[0].at("busiest_us").get<double>(),
              rows[at].at("busiest_us").get<double>() * 1.001);
  EXPECT_THAT(output({"synthesize", "all_reduce", "--topology", node_, "--prices"}),
              HasSubstr("\nring "));
}

TEST_F(TuttiPlanTopology, WithoutSchedulesSaysWhy) {
  EXPECT_THAT(output({"synthesize", "all_to_all", "--topology", node_}, 2),
              HasSubstr("all_to_all cannot be synthesized"));
  EXPECT_THAT(output({"synthesize", "broadcast", "--root", "3", "--topology", node_}, 2),
              HasSubstr("the root 3 is no GPU of the topology's 3"));
  const std::string empty = write("empty.xml", "<system><cpu numaid=\"0\"/></system>");
  EXPECT_THAT(output({"synthesize", "all_reduce", "--topology", empty}, 2),
              HasSubstr("at least two GPUs"));
  EXPECT_THAT(output({"synthesize", "all_reduce", "--topology", node_, "--json"}, 2),
              HasSubstr("requires --prices"));
}

}  // namespace
}  // namespace tutti::tools
