#include "topology/fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <tutti/error.hpp>

#include "tests/common/errors.h"
#include "topology/nccl_xml.h"
#include "topology/topology_file.h"
#include "topology_files.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

/// A folder with the small topology, which goes with the test.
class FabricFile : public testing::Test {
 protected:
  FabricFile() {
    std::string name = testing::TempDir() + "fabric_XXXXXX";
    folder_ = mkdtemp(name.data());
    std::ofstream(folder_ / "node.xml") << kSmallTopology;
  }
  ~FabricFile() override { std::filesystem::remove_all(folder_); }

  Fabric read(const std::string& text) const {
    std::ofstream(folder_ / "fabric.json") << text;
    return read_topology_file((folder_ / "fabric.json").string());
  }

  std::string error_in(const std::string& text) const {
    SCOPED_TRACE(text);
    return usage_error([&] { read(text); });
  }

  std::filesystem::path folder_;
};

double leaving(const Graph& graph, int device, DeviceKind to) {
  double sum = 0;
  for (const Wire& wire : graph.wires)
    if (wire.from == device && graph.devices[static_cast<std::size_t>(wire.to)].kind == to)
      sum += wire.gb_per_s;
  return sum;
}

TEST_F(FabricFile, NodesAndATopologyAreEnough) {
  const Fabric fabric = read(R"({"nodes": 4, "topology": "node.xml"})");
  EXPECT_EQ(fabric.nodes, 4);
  EXPECT_EQ(fabric.rails, 3);  // as many as a node has ports
  EXPECT_EQ(fabric.nodes_per_leaf, 4);
  const Graph graph = expand(fabric);
  EXPECT_TRUE(graph.is_sound());
  EXPECT_EQ(graph.machines, 4);
  EXPECT_THAT(graph.all(DeviceKind::gpu), SizeIs(12));
  EXPECT_THAT(graph.all(DeviceKind::net_switch), SizeIs(6));  // a leaf for each rail, three spines
}

TEST_F(FabricFile, LeavesAndSpinesCarryWhatTheOversubscriptionSays) {
  const Fabric fabric = read(R"({"nodes": 6, "topology": "node.xml", "rails": 1,
      "nodes_per_leaf": 2, "spines": 2, "oversubscription": 4, "hop_us": 0.5})");
  EXPECT_EQ(fabric.leaves(), 3);
  const Graph graph = expand(fabric);
  EXPECT_TRUE(graph.is_sound());
  const double of_node = 25 + 12.5 + 1.25;
  int leaves = 0;
  for (const int at : graph.all(DeviceKind::net_switch)) {
    const double down = leaving(graph, at, DeviceKind::port);
    if (down == 0) continue;  // a spine
    ++leaves;
    EXPECT_DOUBLE_EQ(down, 2 * of_node);
    EXPECT_DOUBLE_EQ(leaving(graph, at, DeviceKind::net_switch), 2 * of_node / 4);
  }
  EXPECT_EQ(leaves, 3);
}

TEST_F(FabricFile, RailsKeepTheSamePortsOfAllNodesTogether) {
  const Graph graph =
      expand(read(R"({"nodes": 2, "topology": "node.xml", "rails": 3, "spines": 1})"));
  const auto port = [&](const std::string& name) {
    for (std::size_t at = 0; at < graph.devices.size(); ++at)
      if (graph.devices[at].name == name) return static_cast<int>(at);
    return -1;
  };
  const auto leaf_of = [&](int of) {
    for (const Wire& wire : graph.wires)
      if (wire.from == of && graph.devices[static_cast<std::size_t>(wire.to)].machine == -1)
        return wire.to;
    return -1;
  };
  EXPECT_EQ(leaf_of(port("0/net 1")), leaf_of(port("1/net 1")));
  EXPECT_NE(leaf_of(port("0/net 1")), leaf_of(port("1/net 0")));
}

TEST_F(FabricFile, AMalformedDescriptionIsRefusedWithThePlaceAndTheReason) {
  EXPECT_THAT(error_in("{\"nodes\": 2,\n \"topology\": }"), HasSubstr("line 2, column"));
  EXPECT_THAT(error_in("[]"), HasSubstr("fabric.json: this is no object"));
  EXPECT_THAT(error_in(R"({"topology": "node.xml"})"), HasSubstr("'nodes' is missing"));
  EXPECT_THAT(error_in(R"({"nodes": 0, "topology": "node.xml"})"),
              HasSubstr("fabric.json/nodes: this is no whole number from 1 to 1048576"));
  EXPECT_THAT(error_in(R"({"nodes": 18446744073709551615, "topology": "node.xml"})"),
              HasSubstr("no whole number"));
  EXPECT_THAT(error_in(R"({"nodes": 2, "topology": "none.xml"})"), HasSubstr("none.xml"));
  EXPECT_THAT(error_in(R"({"nodes": 2, "topology": "node.xml", "rails": 4})"),
              HasSubstr("fabric.json/rails: this is no whole number from 1 to 3"));
  EXPECT_THAT(error_in(R"({"nodes": 2, "topology": "node.xml", "nodes_per_leaff": 4})"),
              HasSubstr("'nodes_per_leaff' is no member that is known here"));
  EXPECT_THAT(error_in(R"({"nodes": 2, "topology": "node.xml", "oversubscription": 0})"),
              HasSubstr("no number from 0.01 to 1000"));
  EXPECT_THAT(error_in("[" + std::string(100, '[') + std::string(100, ']') + "]"),
              HasSubstr("nested more than 64 deep"));
}

TEST_F(FabricFile, AGraphOfTooManyDevicesIsRefusedBeforeItIsMade) {
  const Fabric fabric = read(R"({"nodes": 1000000, "topology": "node.xml"})");
  try {
    expand(fabric);
    FAIL() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_THAT(error.what(), HasSubstr("1000000 nodes"));
  }
  const Fabric meshed =
      read(R"({"nodes": 1000, "topology": "node.xml", "nodes_per_leaf": 1, "spines": 65536})");
  EXPECT_THROW(expand(meshed), Error);
}

TEST_F(FabricFile, ItsGraphIsPrintedAsTextJsonAndPicture) {
  const Graph graph = expand(read(R"({"nodes": 2, "topology": "node.xml"})"));
  EXPECT_THAT(to_text(graph), HasSubstr("4 cpu, 2 pci, 6 gpu, 4 nic, 6 port, 2 nv_switch"));
  EXPECT_THAT(to_text(graph), HasSubstr("GPU 0 (0/0000:02:00.0), 24 GB/s"));
  EXPECT_EQ(nlohmann::json::parse(to_json(graph)).at("devices").size(), graph.devices.size());
  EXPECT_THAT(to_dot(graph), HasSubstr("subgraph cluster_1"));
}

TEST_F(FabricFile, AnXmlFileIsAFabricOfOneNode) {
  const Fabric fabric = read_topology_file((folder_ / "node.xml").string());
  EXPECT_EQ(expand(fabric), read_nccl_topology("node.xml", kSmallTopology));
}

}  // namespace
}  // namespace tutti
