#include "topology/search/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "graphs.h"
#include "topology/nccl_xml.h"
#include "topology_files.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Fabric one_node(const Graph& node) {
  Fabric fabric;
  fabric.node = node;
  return fabric;
}

TEST(TopologyPlan, IsShownAsAMatrixOfPathsWithRingsAndTrees) {
  const Fabric fabric = one_node(full_mesh(4, 10));
  const std::string text = to_text(fabric, plan_topology(fabric, 1));
  EXPECT_THAT(text, AllOf(HasSubstr("GPU 0            LOC    NVL 10/1"), HasSubstr("GB/s NVL  0 1"),
                          HasSubstr("of at most 30 GB/s: 1.000"),
                          HasSubstr("each from GPU 1 alone"), HasSubstr("each from every GPU")));
  EXPECT_THAT(text, Not(HasSubstr("DIS")));
}

TEST(TopologyPlan, IsOneJsonObjectWithTheGraph) {
  const Fabric fabric = one_node(read_nccl_topology("small.xml", kSmallTopology));
  const TopologyPlan plan = plan_topology(fabric);
  const auto json = nlohmann::json::parse(to_json(fabric, plan));
  EXPECT_EQ(json.at("devices").size(), fabric.node.devices.size());
  const auto& found = json.at("plan");
  ASSERT_EQ(found.at("paths").at("between").size(), 36U);
  EXPECT_EQ(found.at("paths").at("between")[1].at("kind"), "NVL");
  ASSERT_TRUE(plan.rings);
  ASSERT_EQ(found.at("rings").at("list").size(), plan.rings->rings.size());
  EXPECT_EQ(found.at("rings").at("list")[0].at("gpus").size(), 3U);
  EXPECT_EQ(found.at("trees").at("list").size(), plan.trees->trees.size());
  EXPECT_EQ(found.at("trees_of_one_root").at("list")[0].at("root"), 0);
}

TEST(TopologyPlan, IsDrawnWithAnArrowForEachStepOfARing) {
  const Fabric fabric = one_node(full_mesh(8, 48));
  const std::string svg = to_svg(fabric, plan_topology(fabric));
  EXPECT_THAT(svg, AllOf(StartsWith("<svg "), HasSubstr("7 rings, 336 of at most 336 GB/s"),
                         HasSubstr("</svg>")));
  std::size_t arrows = 0;
  for (std::size_t at = svg.find("<path d=\"M"); at != std::string::npos;
       at = svg.find("<path d=\"M", at + 1))
    if (svg.substr(at, svg.find("/>", at) - at).find("marker-end") != std::string::npos) ++arrows;
  EXPECT_EQ(arrows, 7U * 8U);
}

TEST(TopologyPlan, SaysWhyThereIsNone) {
  const Fabric empty = one_node({});
  EXPECT_THAT(to_text(empty, plan_topology(empty)),
              AllOf(HasSubstr("rings    none: "), HasSubstr("this topology has no GPUs"),
                    HasSubstr("there is no GPU 0 for a root")));
  EXPECT_THAT(to_svg(empty, plan_topology(empty)), HasSubstr("no rings"));
  const auto json = nlohmann::json::parse(to_json(empty, plan_topology(empty)));
  EXPECT_THAT(json.at("plan").at("rings").at("why_not").get<std::string>(), HasSubstr("no GPUs"));

  Graph parted = full_mesh(2, 10);
  add_device(parted, DeviceKind::gpu);
  const Fabric of_parts = one_node(parted);
  EXPECT_THAT(to_text(of_parts, plan_topology(of_parts)),
              AllOf(HasSubstr("DIS no path"), HasSubstr("no ring passes by all GPUs"),
                    HasSubstr("do not all reach each other")));

  Graph large;
  const int cpu = add_device(large, DeviceKind::cpu);
  for (int gpu = 0; gpu < 1000; ++gpu)
    connect(large, cpu, add_device(large, DeviceKind::gpu, cpu), WireKind::pci, 12);
  const Fabric of_many = one_node(large);
  EXPECT_THAT(to_text(of_many, plan_topology(of_many)),
              AllOf(HasSubstr("between 1000 GPUs and ports"), HasSubstr("there are no paths")));
}

}  // namespace
}  // namespace tutti
