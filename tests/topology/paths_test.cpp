#include "topology/search/paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include <tutti/error.hpp>

#include "graphs.h"
#include "topology/fabric.h"
#include "topology/nccl_xml.h"
#include "topology_files.h"

namespace tutti {
namespace {

using testing::HasSubstr;

std::string shown(const Path& path) {
  return std::string(to_string(path.kind)) + " " + std::to_string(path.hops()) + " " +
         std::to_string(static_cast<int>(path.gb_per_s));
}

/// Checks that the links of a path lead from one end to the other, and that its bandwidth is that
/// of the narrowest.
void expect_connected(const Paths& paths, int from, int to) {
  const Path& path = paths.between(from, to);
  int at = paths.ends()[static_cast<std::size_t>(from)];
  double narrowest = 1e300;
  for (const int number : path.links) {
    const Link& link = paths.links()[static_cast<std::size_t>(number)];
    EXPECT_EQ(link.from, at);
    at = link.to;
    narrowest = std::min(narrowest, link.gb_per_s);
  }
  EXPECT_EQ(at, paths.ends()[static_cast<std::size_t>(to)]);
  if (!path.links.empty()) {
    EXPECT_EQ(path.gb_per_s, narrowest);
  }
}

TEST(Paths, HaveTheKindsHopsAndBandwidthsOfAFile) {
  const Paths paths(read_nccl_topology("small.xml", kSmallTopology));
  ASSERT_EQ(paths.gpus(), 3);
  ASSERT_EQ(paths.ports(), 3);
  EXPECT_EQ(shown(paths.between(0, 0)), "LOC 0 0");
  EXPECT_EQ(shown(paths.between(0, 1)), "NVL 1 40");
  EXPECT_EQ(shown(paths.between(0, 2)), "NVL 2 80");  // by the NVSwitch
  EXPECT_EQ(shown(paths.between(1, 2)), "SYS 4 10");  // GPU 0 passes nothing on to a switch
  EXPECT_EQ(shown(paths.between(1, 3)), "PIX 3 12");
  EXPECT_EQ(shown(paths.between(0, 4)), "PIX 3 12");  // the second port, behind PCI 3.0 x16
  EXPECT_EQ(shown(paths.between(2, 5)), "PHB 3 1");
  EXPECT_EQ(shown(paths.between(5, 0)), "SYS 5 1");
  EXPECT_DOUBLE_EQ(paths.between(0, 4).latency_us, 1.5);
  for (int a = 0; a < 6; ++a)
    for (int b = 0; b < 6; ++b) expect_connected(paths, a, b);
}

TEST(Paths, AGpuPassesDataOnToItsNeighboursAlone) {
  Graph graph;  // a chain of four GPUs below one processor
  const int cpu = add_device(graph, DeviceKind::cpu);
  for (int gpu = 0; gpu < 4; ++gpu)
    connect(graph, cpu, add_device(graph, DeviceKind::gpu, cpu), WireKind::pci, 12);
  for (int gpu = 1; gpu < 4; ++gpu) connect(graph, gpu, gpu + 1, WireKind::nvlink, 20);
  const Paths paths(graph);
  EXPECT_EQ(shown(paths.between(0, 1)), "NVL 1 20");
  EXPECT_EQ(shown(paths.between(0, 2)), "NVB 2 20");
  EXPECT_EQ(shown(paths.between(0, 3)), "PHB 2 12");
}

TEST(Paths, OfPciAreNamedByTheSwitchesThatTheyPass) {
  Graph graph;
  const int cpu = add_device(graph, DeviceKind::cpu), far = add_device(graph, DeviceKind::cpu);
  connect(graph, cpu, far, WireKind::cpus, 10);
  const int top = add_device(graph, DeviceKind::pci, cpu);
  connect(graph, cpu, top, WireKind::pci, 24);
  for (int low = 0; low < 2; ++low) {
    const int below = add_device(graph, DeviceKind::pci, top);
    connect(graph, top, below, WireKind::pci, 24);
    for (int gpu = 0; gpu < 2; ++gpu)
      connect(graph, below, add_device(graph, DeviceKind::gpu, below), WireKind::pci, 12);
  }
  for (const int node : {cpu, far})
    connect(graph, node, add_device(graph, DeviceKind::gpu, node), WireKind::pci, 6);
  const Paths paths(graph);
  EXPECT_EQ(shown(paths.between(0, 1)), "PIX 2 12");
  EXPECT_EQ(shown(paths.between(0, 2)), "PXB 4 12");
  EXPECT_EQ(shown(paths.between(0, 4)), "PHB 4 6");
  EXPECT_EQ(shown(paths.between(0, 5)), "SYS 5 6");
}

TEST(Paths, TakeTheFewestHopsOfTheBestKindAndThenTheWidest) {
  Graph graph;  // GPU 0 reaches GPU 4 by any of the others, and by a wide processor
  const int cpu = add_device(graph, DeviceKind::cpu);
  for (int gpu = 0; gpu < 5; ++gpu)
    connect(graph, cpu, add_device(graph, DeviceKind::gpu, cpu), WireKind::pci, 100);
  for (int middle = 2; middle < 5; ++middle) {
    connect(graph, 1, middle, WireKind::xgmi, middle == 3 ? 24 : 12);
    connect(graph, middle, 5, WireKind::xgmi, 24);
  }
  const Paths paths(graph);
  EXPECT_EQ(shown(paths.between(0, 4)), "NVB 2 24");
  EXPECT_EQ(paths.links()[static_cast<std::size_t>(paths.between(0, 4).links[0])].to, 3);
  connect(graph, 1, 5, WireKind::xgmi, 1);  // one hop of a better kind, however narrow
  EXPECT_EQ(shown(Paths(graph).between(0, 4)), "NVL 1 1");
}

TEST(Paths, ParallelWiresAreOneLink) {
  Graph graph = full_mesh(2, 20);
  connect(graph, 0, 1, WireKind::nvlink, 5, 2);
  const Paths paths(graph);
  EXPECT_EQ(shown(paths.between(0, 1)), "NVL 1 25");
  EXPECT_DOUBLE_EQ(paths.between(0, 1).latency_us, 2);
}

TEST(Paths, BetweenMachinesPassTheNetwork) {
  Fabric fabric;
  fabric.node = read_nccl_topology("small.xml", kSmallTopology);
  fabric.nodes = 2;
  fabric.rails = 3;
  fabric.nodes_per_leaf = 2;
  const Paths paths(expand(fabric));
  EXPECT_EQ(paths.between(0, 3).kind, PathKind::net);
  EXPECT_EQ(paths.between(0, 1).kind, PathKind::nvl);
  expect_connected(paths, 0, 5);
}

TEST(Paths, WhereThereIsNoWayTheyAreDis) {
  Graph graph = full_mesh(2, 10);
  add_device(graph, DeviceKind::gpu);
  graph.wires.push_back({0, 2, WireKind::nvlink, 10, 0, {}});  // a link in one direction
  const Paths paths(graph);
  EXPECT_EQ(shown(paths.between(0, 2)), "NVL 1 10");
  EXPECT_EQ(shown(paths.between(2, 0)), "DIS 0 0");
}

TEST(Paths, AreNotSearchedBetweenTooManyEnds) {
  Graph graph;
  const int cpu = add_device(graph, DeviceKind::cpu);
  for (int gpu = 0; gpu < 1000; ++gpu)
    connect(graph, cpu, add_device(graph, DeviceKind::gpu, cpu), WireKind::pci, 12);
  try {
    const Paths paths(graph);
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_THAT(error.what(), HasSubstr("between 1000 GPUs and ports"));
  }
}

TEST(Paths, OfRealMachinesAreCompleteAndHaveTheKindsThatTheirLinksSay) {
  const std::vector<std::string> files = shared_files("topologies");
  if (files.empty()) GTEST_SKIP() << "there is no folder of topologies beside the sources";
  // Says how many pairs of GPUs have a path of each kind, for files whose links are easily counted.
  const std::map<std::string, std::map<PathKind, int>> known{
      {"p4d-24xl-topo.xml", {{PathKind::pix, 8}, {PathKind::phb, 16}, {PathKind::sys, 32}}},
      {"topo_4p1h.xml", {{PathKind::nvl, 8}, {PathKind::nvb, 4}}},
      {"topo_8p_940.xml", {{PathKind::nvl, 56}}},
      // This machine has two rings of four GPUs.
      {"topo_8p_rome.xml",
       {{PathKind::nvl, 16}, {PathKind::nvb, 8}, {PathKind::phb, 12}, {PathKind::sys, 20}}}};
  for (const std::string& file : files) {
    const Paths paths(read_nccl_topology(file, content_of(file)));
    std::map<PathKind, int> kinds;
    for (int a = 0; a < paths.gpus(); ++a)
      for (int b = 0; b < paths.gpus() + paths.ports(); ++b) {
        expect_connected(paths, a, b);
        EXPECT_EQ(paths.between(a, b).kind, paths.between(b, a).kind) << file;
        EXPECT_LT(paths.between(a, b).kind, PathKind::net) << file;
        if (a != b && b < paths.gpus()) ++kinds[paths.between(a, b).kind];
      }
    const auto found = known.find(std::filesystem::path(file).filename());
    if (found != known.end()) {
      EXPECT_EQ(kinds, found->second) << file;
    }
  }
}

}  // namespace
}  // namespace tutti
