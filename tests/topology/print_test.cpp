#include "topology/print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "machines.h"

namespace tutti {
namespace {

using testing::HasSubstr;

const std::string kTwoPackages =
    "pack:2 [numa(memory=16GiB)] l3:1(size=32MiB) l2:2(size=1280KiB) core:1 pu:2";

TEST(MachineAsText, IsATreeInWhichOnlyChildrenShareALine) {
  EXPECT_EQ(to_text(described(kTwoPackages)),
            "machine\n"
            "  package 0, numa 0 16 GiB, L3 32 MiB\n"
            "    L2 1.25 MiB, core 0: cpus 0-1\n"
            "    L2 1.25 MiB, core 1: cpus 2-3\n"
            "  package 1, numa 1 16 GiB, L3 32 MiB\n"
            "    L2 1.25 MiB, core 2: cpus 4-5\n"
            "    L2 1.25 MiB, core 3: cpus 6-7\n");
}

TEST(MachineAsText, OfOneCoreIsOneLine) {
  EXPECT_EQ(to_text(plain_machine({0})), "machine, package 0, core 0: cpus 0\n");
}

TEST(MachineAsDot, HasABoxInABoxAndGreyCoresThatAreNotAllowed) {
  Machine machine = described("pack:1 core:2 pu:1");
  machine.allowed = {1};
  const std::string dot = to_dot(machine);
  EXPECT_THAT(dot, HasSubstr("digraph machine {"));
  EXPECT_THAT(dot, HasSubstr("label=\"package 0\""));
  EXPECT_THAT(dot, HasSubstr("label=\"core 0\\ncpus 0\", fillcolor=gray"));
  EXPECT_THAT(dot, HasSubstr("label=\"core 1\\ncpus 1\", fillcolor=white"));
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '{'), std::count(dot.begin(), dot.end(), '}'));
}

TEST(LinksAsText, AreATableWithALetterForEachPairAndALegend) {
  EXPECT_EQ(links_text(described(kTwoPackages), {{0}, {1}, {2}, {4}}),
            "links    0 1 2 3\n"
            "rank 0   . c 3 x\n"
            "rank 1   c . 3 x\n"
            "rank 2   3 3 . x\n"
            "rank 3   x x x .\n"
            "c same core, 2 shared L2, 3 shared L3, p same package, x other package\n");
}

}  // namespace
}  // namespace tutti
