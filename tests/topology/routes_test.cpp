#include "topology/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "topology/nccl_xml.h"
#include "topology_files.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Makes two GPUs behind an NVSwitch, each with a port of its own behind its PCI switch.
const std::string kPair = R"(<system version="1"><cpu numaid="0" arch="x86_64">
<pci busid="1" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
<pci busid="2" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="90">
<nvlink target="a" count="4" tclass="0x068000"/></gpu></pci>
<pci busid="3" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
<nic><net dev="0" speed="200000" port="1" guid="0x1"/></nic></pci></pci>
<pci busid="4" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
<pci busid="5" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="1" sm="90">
<nvlink target="a" count="4" tclass="0x068000"/></gpu></pci>
<pci busid="6" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
<nic><net dev="1" speed="200000" port="1" guid="0x2"/></nic></pci></pci>
</cpu></system>)";

Fabric fabric(int nodes, int rails = 2, int nodes_per_leaf = 0) {
  Fabric fabric;
  fabric.node = read_nccl_topology("node.xml", kPair);
  fabric.nodes = nodes;
  fabric.rails = rails;
  fabric.nodes_per_leaf = nodes_per_leaf > 0 ? nodes_per_leaf : nodes;
  fabric.spines = 2;
  fabric.oversubscription = 4;
  fabric.hop_us = 0.5;
  return fabric;
}

/// Returns the links of a route in words.
std::vector<std::string> route(const Routes& routes, int from, int to) {
  std::vector<std::uint32_t> links;
  routes.find(from, to, links);
  std::vector<std::string> text;
  for (const std::uint32_t link : links)
    text.push_back(fmt::format("{} {}: {:g}", to_string(routes.link(link).kind), routes.name(link),
                               routes.link(link).gb_per_s));
  return text;
}

TEST(Routes, WithinANodeTakeTheWidestWay) {
  const Routes routes(fabric(3));
  EXPECT_EQ(routes.gpus(), 2);
  EXPECT_EQ(routes.ranks(), 6);
  EXPECT_THAT(route(routes, 3, 2), ElementsAre("nvlink node 1: 5 to NVSwitch: 82.4",
                                               "nvlink node 1: NVSwitch to 2: 82.4"));
}

TEST(Routes, OfOneRailPassItsLeafAndThoseBetweenLeavesTheSpines) {
  const Routes routes(fabric(3));
  EXPECT_THAT(route(routes, 0, 2),
              ElementsAre("pci node 0: 2 to 1: 48", "pci node 0: 1 to 3: 48",
                          "nic node 0: 3 to net 0: 25", "net node 0: port 0 to its leaf: 25",
                          "net node 1: port 0 from its leaf: 25", "nic node 1: net 0 to 3: 25",
                          "pci node 1: 3 to 1: 48", "pci node 1: 1 to 2: 48"));
  // GPU 1 has a port on the other rail, which is a leaf of its own.
  const auto across = route(routes, 0, 3);
  ASSERT_EQ(across.size(), 10u);
  EXPECT_EQ(across[4], "spine leaf 0 of rail 0 to the spines: 18.75");
  EXPECT_EQ(across[5], "spine leaf 0 of rail 1 from the spines: 18.75");
  EXPECT_EQ(across[6], "net node 1: port 1 from its leaf: 25");
  // With two nodes a leaf, the third is behind another one, which one node enters.
  const Routes leaves(fabric(3, 2, 2));
  EXPECT_EQ(route(leaves, 0, 2).size(), 8u);
  EXPECT_EQ(route(leaves, 0, 4)[4], "spine leaf 0 of rail 0 to the spines: 12.5");
  EXPECT_EQ(route(leaves, 0, 4)[5], "spine leaf 1 of rail 0 from the spines: 6.25");
  EXPECT_EQ(leaves.link(leaves.links() - 1).latency_us, 0.5);
}

// The links of a leaf to all spines are one link of the same bandwidth as in the drawn graph.
TEST(Routes, CarryAsMuchBetweenSwitchesAsTheGraphOfAllNodes) {
  for (const int nodes_per_leaf : {1, 2, 3, 5}) {
    const Fabric described = fabric(5, 2, nodes_per_leaf);
    const Routes routes(described);
    const Graph graph = expand(described);
    double drawn = 0, arithmetic = 0;
    for (const Wire& wire : graph.wires)
      if (graph.devices[static_cast<std::size_t>(wire.from)].kind == DeviceKind::net_switch &&
          graph.devices[static_cast<std::size_t>(wire.to)].kind == DeviceKind::net_switch)
        drawn += wire.gb_per_s;
    for (std::uint32_t link = 0; link < routes.links(); ++link)
      if (routes.link(link).kind == RouteKind::spine) arithmetic += routes.link(link).gb_per_s;
    EXPECT_DOUBLE_EQ(drawn, arithmetic) << nodes_per_leaf;
  }
}

TEST(Routes, ReachEveryRankFromEveryOther) {
  const Routes routes(fabric(4, 1, 3));
  std::vector<std::uint32_t> links;
  for (int from = 0; from < 8; ++from)
    for (int to = 0; to < 8; ++to) {
      if (from == to) continue;
      routes.find(from, to, links);
      ASSERT_FALSE(links.empty());
      for (const std::uint32_t link : links) {
        ASSERT_LT(link, routes.links());
        ASSERT_GT(routes.link(link).gb_per_s, 0);
      }
    }
}

std::string refusal(const Fabric& fabric) {
  try {
    const Routes routes(fabric);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

TEST(Routes, ThatDoNotExistAreRefused) {
  Fabric none = fabric(2);
  none.node = read_nccl_topology("node.xml", "<system><cpu numaid=\"0\"/></system>");
  EXPECT_THAT(refusal(none), HasSubstr("a node has 0 GPUs"));
  Fabric many = fabric(kMostNodes);
  many.node = read_nccl_topology("node.xml", kSmallTopology);
  for (int copy = 0; copy < 200; ++copy)
    connect(many.node, copy % 3, 3 + copy % 5, WireKind::pci, 1);
  EXPECT_EQ(Routes(fabric(kMostNodes)).ranks(), 2 * std::int64_t{kMostNodes});
  Fabric apart = fabric(2);
  apart.node.wires.clear();
  EXPECT_THAT(refusal(apart), HasSubstr("does not reach"));
  Fabric portless = fabric(2);
  std::erase_if(portless.node.wires, [&](const Wire& wire) {
    return portless.node.devices[static_cast<std::size_t>(wire.to)].kind == DeviceKind::port;
  });
  EXPECT_THAT(refusal(portless), HasSubstr("reaches no port of its node"));
}

}  // namespace
}  // namespace tutti
