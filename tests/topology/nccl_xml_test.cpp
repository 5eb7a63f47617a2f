#include "topology/nccl_xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include <tutti/error.hpp>

#include "tests/common/errors.h"
#include "topology_files.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::DoubleNear;
using testing::HasSubstr;
using testing::SizeIs;

std::string error_in(const std::string& text) {
  SCOPED_TRACE(text.substr(0, 200));
  return usage_error([&] { read_nccl_topology("bad.xml", text); });
}

double bandwidth(const Graph& graph, const std::string& from, const std::string& to) {
  double sum = 0;
  for (const Wire& wire : graph.wires)
    if (graph.devices[static_cast<std::size_t>(wire.from)].name == from &&
        graph.devices[static_cast<std::size_t>(wire.to)].name == to)
      sum += wire.gb_per_s;
  return sum;
}

TEST(NcclXml, DevicesAndLinksOfAFileBecomeAGraph) {
  const Graph graph = read_nccl_topology("small.xml", kSmallTopology);
  EXPECT_TRUE(graph.is_sound());
  EXPECT_THAT(graph.all(DeviceKind::cpu), SizeIs(2));
  EXPECT_THAT(graph.all(DeviceKind::pci), SizeIs(1));
  EXPECT_THAT(graph.all(DeviceKind::gpu), SizeIs(3));
  EXPECT_THAT(graph.all(DeviceKind::nic), SizeIs(2));
  EXPECT_THAT(graph.all(DeviceKind::port), SizeIs(3));
  EXPECT_THAT(graph.all(DeviceKind::nv_switch), SizeIs(1));
}

TEST(NcclXml, BandwidthsFollowTheGenerationOfEachLink) {
  const Graph graph = read_nccl_topology("small.xml", kSmallTopology);
  EXPECT_DOUBLE_EQ(bandwidth(graph, "0000:01:00.0", "cpu 0"), 12);         // PCI 3.0 x16
  EXPECT_DOUBLE_EQ(bandwidth(graph, "0000:02:00.0", "0000:01:00.0"), 24);  // 4.0 x16
  EXPECT_DOUBLE_EQ(bandwidth(graph, "0000:01:00.0", "0000:03:00.0"), 12);  // 4.0 x8
  EXPECT_DOUBLE_EQ(bandwidth(graph, "cpu 1", "0000:81:00.0"), 48);         // 5.0 x16
  EXPECT_DOUBLE_EQ(bandwidth(graph, "0000:02:00.0", "0000:03:00.0"), 40);  // two NVLinks of sm 80
  EXPECT_DOUBLE_EQ(bandwidth(graph, "0000:02:00.0", "NVSwitch"), 80);
  EXPECT_THAT(bandwidth(graph, "NVSwitch", "0000:81:00.0"), DoubleNear(82.4, 1e-9));
  EXPECT_DOUBLE_EQ(bandwidth(graph, "cpu 0", "cpu 1"), 10);  // Skylake
  EXPECT_DOUBLE_EQ(bandwidth(graph, "0000:04:00.0", "net 0"), 25);
  EXPECT_DOUBLE_EQ(bandwidth(graph, "net 2", "nic 1"), 1.25);  // 10 Gb/s where it is not known
}

TEST(NcclXml, ALinkToAGpuThatTheFileDoesNotHaveIsLeftOut) {
  const Graph graph = read_nccl_topology("small.xml", kSmallTopology);
  int of_last_gpu = 0;
  for (const Wire& wire : graph.wires)
    if (wire.kind == WireKind::nvlink &&
        graph.devices[static_cast<std::size_t>(wire.from)].name == "0000:81:00.0")
      ++of_last_gpu;
  EXPECT_EQ(of_last_gpu, 1);
}

TEST(NcclXml, AFileThatIsWrittenAndReadAgainGivesAnEqualGraph) {
  const Graph graph = read_nccl_topology("small.xml", kSmallTopology);
  const std::string written = write_nccl_topology(graph);
  EXPECT_EQ(read_nccl_topology("written.xml", written), graph);
  EXPECT_EQ(write_nccl_topology(read_nccl_topology("written.xml", written)), written);
  EXPECT_THAT(written, AllOf(HasSubstr("affinity=\"0000ff00\""), HasSubstr("maxconn=\"262144\"")));
}

TEST(NcclXml, AGpuThatIsNamedBehindTheDevicesBelowItKeepsItsNumberAndLinks) {
  const Graph graph =
      read_nccl_topology("file", R"(<system version="1"><cpu numaid="0" arch="x86_64">
    <pci busid="1" class="0x060400" link_speed="8 GT/s" link_width="16">
      <pci busid="2"><gpu dev="0" sm="86"><nvlink target="3" count="2" tclass="0x030200"/></gpu></pci>
      <pci busid="3"><gpu dev="1" sm="80"><nvlink target="2" count="2" tclass="0x030200"/></gpu></pci>
      <gpu gcn="gfx942"><xgmi target="2" count="1" tclass="0x120000"/></gpu>
    </pci></cpu></system>)");
  EXPECT_EQ(read_nccl_topology("again", write_nccl_topology(graph)), graph);
}

TEST(NcclXml, EveryFileOfRealMachinesSurvivesBeingReadAndWritten) {
  const std::vector<std::string> files = shared_files("topologies");
  if (files.empty()) GTEST_SKIP() << "there is no folder of topologies beside the sources";
  const std::map<std::string, std::size_t> gpus{
      {"topo_3p_pcie.xml", 3}, {"topo_4p1h.xml", 4}, {"topo_16p1h.xml", 16}};
  for (const std::string& file : files) {
    const Graph graph = read_nccl_topology(file, content_of(file));
    EXPECT_TRUE(graph.is_sound()) << file;
    const auto known = gpus.find(std::filesystem::path(file).filename());
    EXPECT_THAT(graph.all(DeviceKind::gpu), SizeIs(known == gpus.end() ? 8 : known->second))
        << file;
    EXPECT_EQ(read_nccl_topology(file, write_nccl_topology(graph)), graph) << file;
  }
}

TEST(NcclXml, AMalformedFileIsRefusedWithItsLineAndTheReason) {
  EXPECT_THAT(error_in(""), HasSubstr("bad.xml, line 1: this is no XML"));
  EXPECT_THAT(error_in("<system>\n<cpu>\n</system>"), HasSubstr("line 3: this is no XML"));
  EXPECT_THAT(error_in("<a/>"), HasSubstr("the outermost element is <a>, expected <system>"));
  EXPECT_THAT(error_in("<system version=\"1\"/>"), HasSubstr("there is no <cpu>"));
  const auto with = [](const std::string& what, const std::string& by) {
    return error_in(replaced(kSmallTopology, what, by));
  };
  EXPECT_THAT(with("numaid=\"0\"", "numaid=\"x\""),
              HasSubstr("line 3: numaid='x' of <cpu> is no whole number"));
  EXPECT_THAT(with("<pci busid=\"0000:02:00.0\"", "<pci"),
              HasSubstr("line 5: <pci> has no attribute 'busid'"));
  EXPECT_THAT(with("busid=\"0000:03:00.0\"", "busid=\"0000:02:00.0\""),
              HasSubstr("line 11: '0000:02:00.0' is described twice"));
  EXPECT_THAT(with("<nvlink target=\"0000:03:00.0\"", "<nvlink target=\"0000:02:00.0\""),
              HasSubstr("line 7: the link leads to where it begins"));
  EXPECT_THAT(with("count=\"2\"", "count=\"0\""), HasSubstr("line 7: count='0' of <nvlink>"));
  EXPECT_THAT(with("<nic>", "<gpu/><nic>"),
              HasSubstr("line 17: a PCI device is one GPU or one network interface"));
  EXPECT_THAT(with("latency=\"1.5\"", "latency=\"-1\""), HasSubstr("line 19: the latency"));
  EXPECT_THAT(with("<nic>", "<disk/><nic>"), HasSubstr("line 17: <'disk'> has no place"));
  EXPECT_THAT(with("busid=\"0000:03:00.0\"", "busid=\"NVSwitch\""), HasSubstr("has the name"));
}

TEST(NcclXml, WhatIsNestedOrLongBeyondItsLimitIsRefused) {
  std::string nested = "<system><cpu numaid=\"0\">";
  for (int depth = 0; depth <= kMostNestedSwitches; ++depth)
    nested += "<pci busid=\"" + std::to_string(depth) + "\">";
  EXPECT_THAT(error_in(nested + "</pci>"), HasSubstr("this is no XML"));
  for (int depth = 0; depth <= kMostNestedSwitches; ++depth) nested += "</pci>";
  EXPECT_THAT(error_in(nested + "</cpu></system>"), HasSubstr("PCI devices are nested"));

  std::string links;
  for (int link = 0; link <= kMostGpuLinks; ++link) links += "<nvlink target=\"0000:03:00.0\"/>";
  EXPECT_THAT(error_in(replaced(kSmallTopology, "<nvlink", links + "<nvlink")),
              HasSubstr("a GPU has more than 1024 links"));

  std::string devices = "<system><cpu numaid=\"0\">";
  for (int device = 0; device <= kMostDevices; ++device)
    devices += "<pci busid=\"" + std::to_string(device) + "\"/>";
  EXPECT_THAT(error_in(devices + "</cpu></system>"), HasSubstr("more than 65536 devices"));
}

TEST(NcclXml, AGraphThatNoFileDescribedIsNotWritten) {
  Graph graph = read_nccl_topology("small.xml", kSmallTopology);
  graph.system = {};
  EXPECT_THROW(write_nccl_topology(graph), Error);
}

}  // namespace
}  // namespace tutti
