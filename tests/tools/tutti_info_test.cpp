// Runs the real tutti-info.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "command.h"
#include "common/cpus.h"
#include "tests/topology/fake_sys.h"

namespace tutti::tools {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

/// `variables` are NAME=VALUE, for its environment.
struct Info {
  explicit Info(std::vector<std::string> arguments, std::vector<std::string> variables = {}) {
    arguments.insert(arguments.begin(), TUTTI_INFO);
    variables.insert(variables.begin(), "env");
    arguments.insert(arguments.begin(), variables.begin(), variables.end());
    Command command(arguments);
    status = command.wait();
    out = command.out();
    err = command.err();
  }
  int status;
  std::string out, err;
};

TEST(TuttiInfo, SaysWhatTheBuildIs) {
  const Info info({});
  EXPECT_EQ(info.status, 0);
  EXPECT_THAT(info.out, AllOf(HasSubstr("tutti " + std::string(version())), HasSubstr("compiler"),
                              HasSubstr("build type")));
  EXPECT_THAT(info.err, IsEmpty());
}

TEST(TuttiInfo, ShowsEachKnobWithItsValueAndWhereThatCameFrom) {
  const Info info({"--config"}, {"TUTTI_MESSAGE_BYTES=65536"});
  EXPECT_EQ(info.status, 0);
  EXPECT_THAT(info.out, ContainsRegex("TUTTI_MESSAGE_BYTES +64K +environment +0 "));
  EXPECT_THAT(info.out, ContainsRegex("TUTTI_LOG_LEVEL +warn +default +warn "));
}

nlohmann::json transports_of(const Info& info) {
  EXPECT_EQ(info.status, 0) << info.err;
  return nlohmann::json::parse(info.out)["transports"];
}

TEST(TuttiInfo, ShowsEachTransportOrWhyItCannotBeUsed) {
  const auto transports = transports_of(Info({"--transports", "--json"}));
  std::vector<std::string> usable;
  for (const auto& transport : transports) {
    const std::string name = transport["name"];
    if (transport["usable"]) {
      usable.push_back(name);
      EXPECT_GT(transport["bytes_per_second"], 0) << name;
      EXPECT_GT(transport["latency_us"], 0) << name;
    } else {
      EXPECT_FALSE(std::string(transport["why_not"]).empty()) << name;
    }
  }
  EXPECT_EQ(transports.size(), 6);
  EXPECT_THAT(usable, testing::IsSupersetOf({"local", "shm", "tcp"}));
  const Info text({"--transports"});
  EXPECT_THAT(text.out, ContainsRegex("shm +[0-9.]+ +[0-9.]+ +-"));
  EXPECT_THAT(text.out, HasSubstr("cuda_ipc    cannot be used here: it joins kernels alone"));
}

TEST(TuttiInfo, ShowsTheTransportsThatAreAllowedInTheOrderInWhichTheyAreTried) {
  const auto transports =
      transports_of(Info({"--transports", "--json"}, {"TUTTI_TRANSPORTS=tcp,rdma,shm"}));
  std::vector<std::string> names;
  for (const auto& transport : transports) names.push_back(transport["name"]);
  EXPECT_EQ(names.size(), 3);
  EXPECT_EQ(names.front(), "tcp");
}

TEST(TuttiInfo, SaysThatRdmaDoesNotEncrypt) {
  const auto transports =
      transports_of(Info({"--transports", "--json"}, {"TUTTI_TRANSPORTS=rdma", "TUTTI_TLS=yes"}));
  ASSERT_EQ(transports.size(), 1);
  EXPECT_FALSE(transports[0]["usable"]);
  EXPECT_THAT(std::string(transports[0]["why_not"]), HasSubstr("TUTTI_TLS asks for encryption"));
}

TEST(TuttiInfo, RefusesATransportThatItDoesNotKnow) {
  const Info info({"--transports"}, {"TUTTI_TRANSPORTS=carrier_pigeon"});
  EXPECT_EQ(info.status, 1);
  EXPECT_THAT(info.err, HasSubstr("carrier_pigeon"));
}

TEST(TuttiInfo, PrintsTheSameAsJson) {
  const Info info({"--config", "--json"}, {"TUTTI_SPIN_POLLS=7"});
  EXPECT_EQ(info.status, 0);
  const auto json = nlohmann::json::parse(info.out);
  EXPECT_EQ(json["version"], version());
  for (const auto& knob : json["config"]) {
    const bool set = knob["name"] == "spin_polls";
    EXPECT_EQ(knob["source"], set ? "environment" : "default");
    if (set) {
      EXPECT_EQ(knob["value"], "7");
    }
  }
  EXPECT_GE(json["config"].size(), 9u);
}

/// Two packages with one L3, two cores and two threads a core: cpus 0 to 7.
const std::string kTwoPackages = "HWLOC_SYNTHETIC=pack:2 l3:1 l2:2 core:1 pu:2";

TEST(TuttiInfo, ShowsGpusAndHowTheyReachEachOther) {
  const test::FakeSys sys("info-gpus");
  test::add_five_gpus(sys);
  const std::vector<std::string> variables{
      "LD_LIBRARY_PATH=" NVML_STAND_IN_FOLDER,
      "FAKE_NVML=0000:19:00.0 H100 GPU-a 0000:81:00.0 -\n0000:81:00.0 H100 GPU-b - -"};
  sys.add_rdma("mlx5_0", "pci0000:80/0000:80:01.0/0000:81:00.0", "4: ACTIVE",
               "400 Gb/sec (4X NDR)");
  const Info text({"--topology", "--sys", sys.path()}, variables);
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out,
              HasSubstr("\nnet 0    mlx5_0 port 1, 0000:81:00.0, numa 1, 400 Gb/s, RDMA\n"));
  EXPECT_THAT(text.out, HasSubstr("gpus     told by NVML and " + sys.path()));
  EXPECT_THAT(text.out, HasSubstr("gpu 0    0000:19:00.0, numa 0, H100, GPU-a, NVLinks: 1\n"));
  EXPECT_THAT(text.out, HasSubstr("gpu 2    0000:1a:00.0, numa 0, NVIDIA GPU 10de:2330\n"));
  EXPECT_THAT(text.out, HasSubstr("gpu 0        .   NVL   PIX   PXB   PHB\n"));
  const Info json({"--topology", "--json", "--sys", sys.path()}, variables);
  const auto gpus = nlohmann::json::parse(json.out)["topology"]["gpus"];
  ASSERT_EQ(gpus["gpus"].size(), 5u);
  EXPECT_EQ(gpus["gpus"][1]["uuid"], "GPU-b");
  EXPECT_EQ(gpus["paths"][0][1], "NVL");
  const Info dot({"--topology", "--dot", "--sys", sys.path()}, variables);
  EXPECT_THAT(dot.out, HasSubstr("gpu0 -> gpu1 [dir=none, label=NVL];"));
}

TEST(TuttiInfo, SaysThatThereIsNoGpu) {
  const test::FakeSys sys("info-none");
  const Info none({"--topology", "--sys", sys.path()},
                  {"LD_LIBRARY_PATH=" NVML_STAND_IN_FOLDER, "FAKE_NVML_ERROR=9"});
  EXPECT_EQ(none.status, 0) << none.err;
  EXPECT_THAT(none.out, ContainsRegex("gpus     none: libnvidia-ml.so.1 does not start .error 9., "
                                      "and .* shows no GPU\n"));
  const Info described({"--topology"}, {kTwoPackages});
  EXPECT_THAT(described.out, Not(HasSubstr("gpus"))) << "those of this machine are not there";
  EXPECT_EQ(Info({"--topology", "--sys", "/nonexistent"}).status, 2);
}

TEST(TuttiInfo, ShowsThisMachineWithWhatThisProcessMayUse) {
  const Info info({"--topology"});
  EXPECT_EQ(info.status, 0) << info.err;
  EXPECT_THAT(info.out, AllOf(HasSubstr("machine"), HasSubstr("core 0"), HasSubstr("limits"),
                              HasSubstr("allowed  cpus " + to_text(affinity()))));
  EXPECT_THAT(info.out, ContainsRegex("rings +[0-9.]+ [KM]iB, by a core's L2 cache"));
}

TEST(TuttiInfo, ShowsWhatRanksWouldGetOnAMachineThatIsDescribed) {
  const Info info({"--topology", "-n", "2"}, {kTwoPackages});
  EXPECT_EQ(info.status, 0) << info.err;
  EXPECT_THAT(info.out, AllOf(HasSubstr("  package 1"), HasSubstr("of another machine"),
                              HasSubstr("rank 0   cpus 0-3\nrank 1   cpus 4-7\n"),
                              HasSubstr("rank 0   . x\n")));
  const Info many({"--topology", "-n", "5"}, {kTwoPackages});
  EXPECT_THAT(many.out, HasSubstr("not bound: 5 ranks are more than the 4 cores"));
  const Info listed({"--topology", "-n", "2"}, {kTwoPackages, "TUTTI_BIND=0,1"});
  EXPECT_THAT(listed.out, HasSubstr("rank 1   cpus 1\n"));
}

TEST(TuttiInfo, PrintsTheTopologyAsJson) {
  const Info info({"--topology", "--json", "-n", "4"}, {kTwoPackages});
  EXPECT_EQ(info.status, 0) << info.err;
  const auto topology = nlohmann::json::parse(info.out)["topology"];
  EXPECT_EQ(topology["ranks"], (std::vector<std::string>{"0-1", "2-3", "4-5", "6-7"}));
  EXPECT_EQ(topology["links"][0][1], "shared L3");
  EXPECT_EQ(topology["links"][0][2], "other package");
  EXPECT_EQ(topology["nodes"][0]["kind"], "machine");
  EXPECT_EQ(topology["nodes"][0]["cpus"], "0-7");
}

TEST(TuttiInfo, DrawsTheTopologyForGraphviz) {
  const Info info({"--topology", "--dot"}, {kTwoPackages});
  EXPECT_EQ(info.status, 0) << info.err;
  EXPECT_THAT(info.out, AllOf(StartsWith("digraph machine {"), HasSubstr("label=\"package 1\"")));
  EXPECT_EQ(Info({"--dot"}).status, 2);
  EXPECT_EQ(Info({"--topology", "--dot", "--json"}).status, 2);
}

TEST(TuttiInfo, RefusesToBindWhatCannotBeBound) {
  const Info info({"--topology", "-n", "2", "--bind", "0,99"}, {kTwoPackages});
  EXPECT_EQ(info.status, 1);
  EXPECT_THAT(info.err, AllOf(HasSubstr("rank 1"), HasSubstr("99"), HasSubstr("0-7")));
}

TEST(TuttiInfo, ReportsAWrongSettingOnStandardErrorAndPrintsNothingElse) {
  const Info info({"--config"}, {"TUTTI_SPIN_POLS=7"});
  EXPECT_EQ(info.status, 1);
  EXPECT_THAT(info.out, IsEmpty());
  EXPECT_THAT(info.err, HasSubstr("TUTTI_SPIN_POLLS"));
}

TEST(TuttiInfo, ShowsNamesAndFilesThatAStartWouldRefuseAndSaysSo) {
  for (const char* const setting :
       {"TUTTI_TRANSPORTS=pigeons", "TUTTI_ALGORITHM=pigeons", "TUTTI_SECRET_FILE=/no/pigeons",
        "TUTTI_SCHEDULES=/no/pigeons", "TUTTI_TOPOLOGY_FILE=/no/pigeons",
        "TUTTI_TUNING_FILE=/no/pigeons"}) {
    const std::string name(setting, std::strchr(setting, '='));
    const Info info({"--config"}, {setting});
    EXPECT_EQ(info.status, 1) << setting;
    EXPECT_THAT(info.out, HasSubstr("pigeons")) << setting;
    EXPECT_THAT(info.err, AllOf(HasSubstr(name.substr(0, 12)), HasSubstr("pigeons"))) << setting;
  }
  EXPECT_EQ(Info({"--config"}, {"TUTTI_TRANSPORTS=shm,tcp", "TUTTI_ALGORITHM=ring"}).status, 0);
}

TEST(TuttiInfo, TriesTheStoreTheCpusAndTheGpuThatSettingsName) {
  const auto refused = [](const char* setting, const char* why) {
    const Info info({"--config"}, {setting, kTwoPackages});
    EXPECT_EQ(info.status, 1) << setting;
    const std::string name(setting, std::strchr(setting, '='));
    EXPECT_THAT(info.err, AllOf(HasSubstr(name), HasSubstr(why))) << setting;
  };
  refused("TUTTI_STORE=file:///no/pigeons", "file:///no/pigeons");
  refused(("TUTTI_STORE=tcp://" + std::string(64, 'x') + ":1").c_str(), "is not known");
  refused("TUTTI_BIND=0,1,65000", "rank 2");
  refused("TUTTI_DEVICE=60000", "is 60000");
  const std::string store = "TUTTI_STORE=file://" + testing::TempDir() + "info-store";
  for (const std::string& good :
       {store, std::string("TUTTI_STORE=tcp://127.0.0.1:1"), std::string("TUTTI_BIND=0"),
        std::string("TUTTI_BIND=auto"), std::string("TUTTI_DEVICE=none")}) {
    const Info info({"--config"}, {good, kTwoPackages});
    EXPECT_EQ(info.status, 0) << good << ": " << info.err;
  }
}

TEST(TuttiInfo, RefusesArgumentsThatItDoesNotKnow) {
  const Info info({"--confg"});
  EXPECT_EQ(info.status, 2);
  EXPECT_THAT(info.err, AllOf(HasSubstr("--confg"), HasSubstr("--help")));
}

TEST(TuttiInfo, ExplainsItself) {
  const Info info({"--help"});
  EXPECT_EQ(info.status, 0);
  EXPECT_THAT(info.out, AllOf(HasSubstr("--config"), HasSubstr("--json"), HasSubstr("Examples")));
}

}  // namespace
}  // namespace tutti::tools
