// GPUs of a folder that looks like /sys, and of a stand-in for NVML.
#include "topology/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "fake_sys.h"
#include "machines.h"
#include "topology/discover.h"
#include "topology/discover_gpus.h"
#include "topology/print_gpus.h"

namespace tutti {
namespace {

using test::add_five_gpus;
using test::FakeSys;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

MachineGpus without_nvml(const FakeSys& sys) { return discover_gpus({sys.path(), "no-nvml.so"}); }

/// Has the stand-in show these GPUs, and asks it.
MachineGpus with_nvml(const FakeSys& sys, const std::string& gpus, const char* error = nullptr) {
  ::setenv("FAKE_NVML", gpus.c_str(), 1);
  if (error != nullptr) ::setenv("FAKE_NVML_ERROR", error, 1);
  const char* const library = std::getenv("TUTTI_TEST_NVML");
  MachineGpus found = discover_gpus({sys.path(), library != nullptr ? library : "not built"});
  ::unsetenv("FAKE_NVML");
  ::unsetenv("FAKE_NVML_ERROR");
  return found;
}

GpuPath path_between(const MachineGpus& machine, std::size_t a, std::size_t b) {
  return GpuPaths(machine).between(a, b);
}

std::vector<std::string> paths_from(const MachineGpus& machine, std::size_t from) {
  std::vector<std::string> paths;
  for (std::size_t to = 0; to < machine.gpus.size(); ++to) {
    if (to == from) continue;
    paths.emplace_back(to_string(path_between(machine, from, to)));
    EXPECT_EQ(path_between(machine, to, from), path_between(machine, from, to));
  }
  return paths;
}

TEST(Gpus, TheBusShowsWhereTheyAreAndHowTheyReachEachOther) {
  const FakeSys sys("gpus-bus");
  add_five_gpus(sys);
  const MachineGpus found = without_nvml(sys);
  ASSERT_EQ(found.gpus.size(), 5u);
  EXPECT_EQ(found.gpus[0].bus, "0000:19:00.0");
  EXPECT_EQ(found.gpus[0].name, "NVIDIA GPU 10de:2330");
  EXPECT_EQ(found.gpus[0].uuid, "");
  EXPECT_EQ(found.gpus[3].numa, 0);
  EXPECT_EQ(found.gpus[4].numa, 1);
  EXPECT_THAT(found.gpus[4].pci, ElementsAre("pci0000:80", "0000:80:01.0", "0000:81:00.0"));
  EXPECT_THAT(paths_from(found, 0), ElementsAre("PIX", "PXB", "PHB", "SYS"));
  EXPECT_THAT(paths_from(found, 4), ElementsAre("SYS", "SYS", "SYS", "SYS"));
  EXPECT_THAT(found.source, HasSubstr("(there is no no-nvml.so)"));
}

TEST(Gpus, InACopyOfSysWithoutLinksTheirNumaNodesSayHowFarTheyAre) {
  const FakeSys sys("gpus-copy");
  sys.add_copied_gpu("0000:17:00.0", "0");
  sys.add_copied_gpu("0000:18:00.0", "0");
  sys.add_copied_gpu("0000:65:00.0", "1");
  sys.add_copied_gpu("0000:66:00.0", "-1");
  const MachineGpus found = without_nvml(sys);
  ASSERT_EQ(found.gpus.size(), 4u);
  EXPECT_THAT(found.gpus[0].pci, IsEmpty());
  EXPECT_THAT(paths_from(found, 0), ElementsAre("PHB", "SYS", "SYS"));
}

TEST(Gpus, OtherDevicesAreNone) {
  const FakeSys sys("gpus-others");
  sys.add("pci0000:00/0000:00:01.0", "0x8086", "0x030000", "0");             // another maker
  sys.add("pci0000:00/0000:00:02.0", "0x10de", "0x040300", "0");             // a GPU's sound
  sys.add("pci0000:00/0000:00:03.0", "0x15b3", "0x020000", "0");             // a NIC
  sys.add("pci0000:00/0000:00:04.0", "0x1002", "0x038000", "-1", "0x740c");  // AMD's
  sys.add("pci0000:00/0000:00:05.0", "0x10de", "", "x", "");
  const MachineGpus found = without_nvml(sys);
  ASSERT_EQ(found.gpus.size(), 1u);
  EXPECT_EQ(found.gpus[0].name, "AMD GPU 1002:740c");
  EXPECT_EQ(found.gpus[0].numa, -1);
}

TEST(Gpus, WhereNothingIsThereItSaysWhatWasLookedFor) {
  const FakeSys sys("gpus-none");
  EXPECT_THAT(without_nvml(sys).gpus, IsEmpty());
  EXPECT_EQ(gpus_text(without_nvml(sys)), "gpus     none: there is no no-nvml.so, and " +
                                              sys.path() + "/bus/pci/devices shows no GPU\n");
  EXPECT_THAT(with_nvml(sys, "").source, HasSubstr("NVML and"));
  EXPECT_THAT(discover_gpus({"/nonexistent", "no-nvml.so"}).gpus, IsEmpty());
}

TEST(Gpus, NvmlTellsNamesLinksAndRefusedAccess) {
  const FakeSys sys("gpus-nvml");
  add_five_gpus(sys);
  const MachineGpus found = with_nvml(sys,
                                      "0000:19:00.0 H100 GPU-a 0000:1e:00.0,0000:1e:00.0 -\n"
                                      "0000:1a:00.0 H100 GPU-b - 2\n"
                                      "0000:1e:00.0 H100 GPU-c 0000:19:00.0 -\n");
  ASSERT_EQ(found.gpus.size(), 5u) << "NVML shows three, the bus all of them";
  EXPECT_EQ(found.gpus[0].name, "H100");
  EXPECT_EQ(found.gpus[0].uuid, "GPU-a");
  EXPECT_EQ(found.gpus[2].numa, 0) << "the bus says it";
  EXPECT_EQ(found.gpus[3].bus, "0000:1d:00.0");
  EXPECT_THAT(found.gpus[0].nvlinks, ElementsAre("0000:1e:00.0", "0000:1e:00.0"));
  EXPECT_THAT(found.gpus[1].unreachable, ElementsAre(2));
  EXPECT_THAT(paths_from(found, 0), ElementsAre("PIX", "NVL", "PXB", "SYS"));
  const std::string text = gpus_text(found);
  EXPECT_THAT(text, HasSubstr("gpu 0    0000:19:00.0, numa 0, H100, GPU-a, NVLinks: 2\n"));
  EXPECT_THAT(text, HasSubstr("gpu 1      PIX     .  PHB!   PXB   SYS\n"));
  EXPECT_THAT(text, HasSubstr("gpu 2      NVL  PHB!     .   PHB   SYS\n")) << "either refuses";
  EXPECT_THAT(text, HasSubstr("! the driver gives one of them no access"));
}

TEST(Gpus, AreOneFabricWhereTheirLinksEndAtSwitches) {
  const FakeSys sys("gpus-switch");
  const MachineGpus found = with_nvml(sys,
                                      "0000:19:00.0 H100 GPU-a 0000:05:00.0 -\n"
                                      "0000:1a:00.0 H100 GPU-b 0000:06:00.0 -\n"
                                      "0000:1b:00.0 T4 GPU-c - -\n");
  EXPECT_EQ(path_between(found, 0, 1), GpuPath::nvl);
  EXPECT_EQ(path_between(found, 1, 2), GpuPath::sys) << "nobody knows where they are";
  EXPECT_THAT(gpus_text(found), HasSubstr("gpu 2    0000:1b:00.0, no numa node, T4, GPU-c\n"));
  EXPECT_THAT(gpus_text(found), Not(HasSubstr("!")));
}

TEST(Gpus, AnNvmlThatDoesNotStartLeavesTheBus) {
  const FakeSys sys("gpus-error");
  add_five_gpus(sys);
  const MachineGpus found = with_nvml(sys, "0000:19:00.0 H100 GPU-a - -", "9");
  ASSERT_EQ(found.gpus.size(), 5u);
  EXPECT_EQ(found.gpus[0].name, "NVIDIA GPU 10de:2330");
  EXPECT_THAT(found.source, HasSubstr("does not start (error 9)"));
}

TEST(Gpus, AnNvmlThatCountsWhatCannotBeIsBroken) {
  const FakeSys sys("gpus-count");
  add_five_gpus(sys);
  for (const char* const count : {"-1", "4097", "4000000000"}) {
    ::setenv("FAKE_NVML_COUNT", count, 1);
    const MachineGpus found = with_nvml(sys, "0000:19:00.0 H100 GPU-a - -");
    ::unsetenv("FAKE_NVML_COUNT");
    EXPECT_EQ(found.gpus.size(), 5u) << count;
    EXPECT_THAT(found.source, HasSubstr("is broken: it counts ")) << count;
  }
}

TEST(Gpus, OneThatNvmlDoesNotDescribeIsMissingAlone) {
  const FakeSys sys("gpus-lost");
  const MachineGpus found = with_nvml(sys,
                                      "0000:19:00.0 H100 - - 2,3\n"
                                      "0000:1a:00.0 lost GPU-b - -\n"
                                      "0000:1b:00.0 endless GPU-c - 3\n"
                                      "0000:1c:00.0 T4 GPU-d - 1\n");
  ASSERT_EQ(found.gpus.size(), 3u);
  EXPECT_EQ(found.gpus[0].uuid, "") << "NVML does not tell it";
  EXPECT_EQ(found.gpus[1].name, std::string(found.gpus[1].name.size(), 'x'));
  EXPECT_GE(found.gpus[1].name.size(), 95u);
  EXPECT_LE(found.gpus[1].name.size(), 96u);
  EXPECT_EQ(found.gpus[2].uuid, "GPU-d");
  EXPECT_THAT(found.gpus[0].unreachable, ElementsAre(1, 2)) << "by the numbers of those shown";
  EXPECT_THAT(found.gpus[1].unreachable, ElementsAre(2));
  EXPECT_THAT(found.gpus[2].unreachable, IsEmpty());
  EXPECT_THAT(found.source, HasSubstr("NVML (which does not describe GPU 1: error 15) and "));
}

TEST(Gpus, AnNvmlThatCannotBeLoadedIsNotCalledMissing) {
  const FakeSys sys("gpus-unloadable");
  const std::string library = sys.path() + "/libnvidia-ml.so.1";
  std::ofstream(library) << "no library";
  const MachineGpus found = discover_gpus({sys.path(), library});
  EXPECT_THAT(found.source, HasSubstr(library + " cannot be loaded: "));
  EXPECT_THAT(found.source, Not(HasSubstr("there is no")));
}

TEST(Gpus, OnlyShortRegularFilesOfTheBusAreRead) {
  const FakeSys sys("gpus-files");
  const auto good = sys.add_copied_gpu("0000:01:00.0", "0");
  const auto pipe = sys.add_copied_gpu("0000:02:00.0", "0");
  const auto endless = sys.add_copied_gpu("0000:03:00.0", "0");
  const auto folder = sys.add_copied_gpu("0000:04:00.0", "0");
  const auto long_line = sys.add_copied_gpu("0000:05:00.0", "0");
  for (const auto& changed : {pipe, endless, folder, long_line})
    std::filesystem::remove(changed / "vendor");
  ASSERT_EQ(::mkfifo((pipe / "vendor").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", endless / "vendor");
  std::filesystem::create_directory(folder / "vendor");
  std::ofstream(long_line / "vendor") << "0x10de" << std::string(5000, ' ');
  const MachineGpus found = without_nvml(sys);
  ASSERT_EQ(found.gpus.size(), 1u);
  EXPECT_EQ(found.gpus[0].bus, "0000:01:00.0");
}

TEST(Gpus, WhatANameContainsChangesNeitherTheTextNorThePicture) {
  const FakeSys sys("gpus-names");
  sys.add_copied_gpu("0000:01\"]; evil [label=\"x\\", "0");
  sys.add_copied_gpu("0000:02\x1b[31m\n0", "0");
  const MachineGpus found = without_nvml(sys);
  ASSERT_EQ(found.gpus.size(), 2u);
  const std::string text = gpus_text(found);
  EXPECT_THAT(text, HasSubstr("gpu 1    0000:02\\x1b[31m\\x0a0, numa 0, NVIDIA GPU 10de:2330\n"));
  const std::string dot = to_dot(describe("pack:1 core:1 pu:1").value(), found);
  EXPECT_THAT(dot, HasSubstr("[label=\"gpu 0\\n0000:01 ]; evil [label= x \\nNVIDIA GPU"));
  EXPECT_THAT(dot, HasSubstr("[label=\"gpu 1\\n0000:02 x1b[31m x0a0\\nNVIDIA GPU"));
}

TEST(Gpus, ThousandsOfThemAreDrawnInSeconds) {
  MachineGpus many;
  constexpr std::size_t kCount = 2000, kLinks = 18;
  const auto bus_of = [](std::size_t gpu) { return "bus " + std::to_string(gpu % kCount); };
  for (std::size_t gpu = 0; gpu < kCount; ++gpu) {
    many.gpus.push_back({bus_of(gpu), "H100", "", -1, {}});
    for (std::size_t link = 1; link <= kLinks; ++link)
      many.gpus.back().nvlinks.push_back(bus_of(gpu + link));
  }
  const auto start = std::chrono::steady_clock::now();
  const std::string dot = to_dot(describe("pack:1 core:1 pu:1").value(), many);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8));
  EXPECT_THAT(dot, HasSubstr("gpu0 -> gpu18 [dir=none, label=NVL];"));
  EXPECT_THAT(dot, HasSubstr("gpu0 -> gpu1982 [dir=none, label=NVL];")) << "the other's link";
  EXPECT_THAT(dot, Not(HasSubstr("gpu0 -> gpu19 ")));
}

TEST(Gpus, AreInTheirNumaNodesInThePicture) {
  const FakeSys sys("gpus-picture");
  add_five_gpus(sys);
  const MachineGpus found = with_nvml(sys,
                                      "0000:19:00.0 H\"100 GPU-a 0000:81:00.0 -\n"
                                      "0000:81:00.0 H100 GPU-b 0000:19:00.0 -\n");
  const Machine machine = describe("pack:2 numa:1 l3:1 l2:2 core:1 pu:1").value();
  const std::string dot = to_dot(machine, found);
  const auto box_of = [&](const std::string& label) {
    const std::size_t end = dot.find("{\n", dot.find("label=\"" + label) - 60);
    const std::size_t begin = dot.rfind("cluster_", end);
    return dot.substr(begin, end - begin);
  };
  const std::string first = box_of("numa 0"), second = box_of("numa 1");
  EXPECT_NE(first, second);
  EXPECT_THAT(dot, HasSubstr(first + "{ gpu0 [label=\"gpu 0\\n0000:19:00.0\\nH 100\""));
  EXPECT_THAT(dot, HasSubstr(second + "{ gpu1 [label=\"gpu 1\\n0000:81:00.0\\nH100\""));
  EXPECT_THAT(dot, HasSubstr("gpu0 -> gpu1 [dir=none, label=NVL];\n"));
  EXPECT_TRUE(dot.ends_with("}\n"));
}

}  // namespace
}  // namespace tutti
