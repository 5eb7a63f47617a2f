// This machine as a topology, from a folder that looks like /sys and a stand-in for NVML.
#include "topology/discover_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "fake_sys.h"
#include "topology/discover.h"
#include "topology/discover_nics.h"
#include "topology/nccl_xml.h"
#include "topology/search/gpu_order.h"
#include "topology/search/plan.h"
#include "topology/topology_file.h"

namespace tutti {
namespace {

using test::FakeSys;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Two GPUs and a network interface below a switch, a GPU and an interface at the other NUMA node.
class ServerTopology : public testing::Test {
 protected:
  ServerTopology() : sys_("topology-" + std::to_string(getpid())) {
    for (const auto& [bus, speed] :
         std::map<std::string, std::string>{{upper_, "16.0 GT/s PCIe"},
                                            {upper_ + "/0000:18:00.0", "16.0 GT/s PCIe"},
                                            {upper_ + "/0000:18:01.0", "8.0 GT/s PCIe"},
                                            {upper_ + "/0000:18:02.0", "16.0 GT/s PCIe"}}) {
      sys_.add(bus, "0x1000", "0x060400", "0", "0xc010");
      sys_.say(bus.substr(bus.size() - 12), "max_link_speed", speed);
      sys_.say(bus.substr(bus.size() - 12), "max_link_width", "16");
    }
    for (const std::string& gpu : {gpus_[0], gpus_[1], gpus_[2]}) {
      sys_.add_gpu(gpu, gpu == gpus_[2] ? "1" : "0");
      sys_.say(gpu.substr(gpu.size() - 12), "max_link_speed", "32.0 GT/s PCIe");
      sys_.say(gpu.substr(gpu.size() - 12), "max_link_width", "16");
    }
    for (const std::string& nic : {nic_, ethernet_})
      sys_.add(nic, "0x15b3", nic == nic_ ? "0x020700" : "0x020000", nic == nic_ ? "0" : "1",
               "0x101b");
    sys_.add_rdma("mlx5_0", nic_, "4: ACTIVE", "200 Gb/sec (4X HDR)");
    sys_.add_rdma("mlx5_1", ethernet_, "1: DOWN", "100 Gb/sec (4X EDR)");
    sys_.add_interface("ib0", nic_, "200000");
    sys_.add_interface("eth0", ethernet_, "25000");
    sys_.add_interface("eth1", ethernet_, "25000", "down");
    sys_.add_interface("docker0", "", "10000");
    cpuinfo_ = sys_.path() + "/cpuinfo";
    std::ofstream(cpuinfo_) << "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n"
                               "model\t\t: 143\nmodel name\t: Xeon\n\nprocessor\t: 1\n";
    ::setenv("FAKE_NVML",
             "0000:19:00.0 H100 GPU-a 0000:1a:00.0,0000:1a:00.0,0000:05:00.0 -\n"
             "0000:1a:00.0 H100 GPU-b 0000:19:00.0,0000:19:00.0,0000:05:00.0 -\n"
             "0000:81:00.0 T4 GPU-c - -\n",
             1);
  }
  ~ServerTopology() override { ::unsetenv("FAKE_NVML"); }

  DiscoveredTopology discovered() const {
    const char* const nvml = std::getenv("TUTTI_TEST_NVML");
    return discover_topology({{sys_.path(), nvml != nullptr ? nvml : "not built"}, cpuinfo_});
  }

  const std::string upper_ = "pci0000:16/0000:16:01.0/0000:17:00.0";
  const std::string gpus_[3] = {upper_ + "/0000:18:00.0/0000:19:00.0",
                                upper_ + "/0000:18:01.0/0000:1a:00.0",
                                "pci0000:80/0000:80:01.0/0000:81:00.0"};
  const std::string nic_ = upper_ + "/0000:18:02.0/0000:1b:00.0";
  const std::string ethernet_ = "pci0000:80/0000:80:02.0/0000:82:00.0";
  const FakeSys sys_;
  std::string cpuinfo_;
};

TEST_F(ServerTopology, IsWhatNcclWritesOfSuchAMachine) {
  const std::string xml = discovered().xml;
  // One element stands for the two ports of a switch, and a link is as fast as its slower end.
  EXPECT_THAT(xml, HasSubstr(R"(
    <pci busid="0000:17:00.0" class="0x060400" vendor="0x1000" device="0xc010" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:19:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90">
          <nvlink target="0000:05:00.0" count="1" tclass="0x068000" />
          <nvlink target="0000:1a:00.0" count="2" tclass="0x030200" />
        </gpu>
      </pci>
      <pci busid="0000:1a:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="8.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="90">)"));
  EXPECT_THAT(xml, HasSubstr(R"(
      <pci busid="0000:1b:00.0" class="0x020700" vendor="0x15b3" device="0x101b" link_speed="16.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="200000" port="1" guid="0xb83fd20300123456" />
        </nic>
      </pci>)"));
  EXPECT_THAT(xml, AllOf(HasSubstr(R"(<cpu numaid="0">)"), HasSubstr(R"(<cpu numaid="1">)")))
      << "the processors are not those of this machine";
  EXPECT_THAT(xml, HasSubstr(R"(<net name="eth0" dev="1" speed="25000" port="1" />)"))
      << "its RDMA port is down";
  EXPECT_THAT(xml, Not(HasSubstr("ib0"))) << "the same port as mlx5_0";
  EXPECT_THAT(xml, Not(HasSubstr("eth1"))) << "it is down";
  EXPECT_THAT(xml, Not(HasSubstr("docker0")));
}

TEST_F(ServerTopology, OfThisMachineHasItsProcessors) {
  const DiscoveredTopology found = discover_topology({{"/sys", ""}, cpuinfo_});
  EXPECT_THAT(found.xml, AllOf(HasSubstr(R"(<cpu numaid=")"), HasSubstr(R"(vendor="GenuineIntel")"),
                               HasSubstr(R"(familyid="6" modelid="143")")));
  EXPECT_THAT(found.xml, HasSubstr("affinity=\"")) << "cpus of a NUMA node";
  EXPECT_THAT(found.source, testing::StartsWith("this machine, told by "));
}

TEST_F(ServerTopology, BecomesAGraphThatIsWrittenAndReadAgain) {
  const Graph graph = read_nccl_topology("this machine", discovered().xml);
  EXPECT_TRUE(graph.is_sound());
  EXPECT_EQ(graph.all(DeviceKind::gpu).size(), 3u);
  EXPECT_EQ(graph.all(DeviceKind::nic).size(), 2u);
  EXPECT_EQ(graph.all(DeviceKind::pci).size(), 1u);
  EXPECT_EQ(graph.all(DeviceKind::nv_switch).size(), 1u);
  EXPECT_EQ(read_nccl_topology("written", write_nccl_topology(graph)), graph);
  const std::string text = to_text(graph);
  EXPECT_THAT(text, HasSubstr("0000:19:00.0"));
  const TopologyPlan plan = plan_topology(fabric_of(graph));
  EXPECT_EQ(plan.paths->between(0, 1).kind, PathKind::nvl);
  EXPECT_EQ(plan.paths->between(0, 2).kind, PathKind::sys);
}

TEST_F(ServerTopology, WithoutNvmlHasItsGpusAndTheirPciLinks) {
  const DiscoveredTopology found = discover_topology({{sys_.path(), "no-nvml.so"}, cpuinfo_});
  const Graph graph = read_nccl_topology("this machine", found.xml);
  EXPECT_EQ(graph.all(DeviceKind::gpu).size(), 3u);
  EXPECT_THAT(graph.all(DeviceKind::nv_switch), IsEmpty());
  EXPECT_THAT(found.source, HasSubstr("there is no no-nvml.so"));
}

TEST(DiscoveredTopology, WithoutAnythingIsOneProcessorAndSaysWhatWasLookedFor) {
  const DiscoveredTopology found =
      discover_topology({{"/nonexistent", "no-nvml.so"}, "/nonexistent"});
  const Graph graph = read_nccl_topology("this machine", found.xml);
  EXPECT_GE(graph.all(DeviceKind::cpu).size(), 1u);
  EXPECT_THAT(graph.all(DeviceKind::gpu), IsEmpty());
  EXPECT_THAT(found.source,
              AllOf(HasSubstr("GPUs: there is no no-nvml.so, and "),
                    HasSubstr("network: /nonexistent/class/infiniband and "
                              "/nonexistent/class/net show no interface that is up")));
}

TEST(DiscoveredTopology, OfGpusThatOnlyNvmlShowsHangsAtTheFirstProcessor) {
  const FakeSys sys("topology-nvml");
  ::setenv("FAKE_NVML", "0000:19:00.0 H100 - 0000:05:00.0 -\n0000:19:00.0 H100 - - -\n", 1);
  const char* const nvml = std::getenv("TUTTI_TEST_NVML");
  const DiscoveredTopology found =
      discover_topology({{sys.path(), nvml != nullptr ? nvml : "not built"}, "/nonexistent"});
  ::unsetenv("FAKE_NVML");
  const Graph graph = read_nccl_topology("this machine", found.xml);
  ASSERT_EQ(graph.all(DeviceKind::gpu).size(), 1u) << "the second has the first one's address";
  const Device& gpu = graph.devices[static_cast<std::size_t>(graph.all(DeviceKind::gpu)[0])];
  EXPECT_EQ(graph.devices[static_cast<std::size_t>(gpu.parent)].kind, DeviceKind::cpu);
}

TEST(DiscoveredTopology, OfAContainerHasTheInterfaceThatItIsShown) {
  const FakeSys sys("topology-container");
  sys.add_interface("eth0", "", "10000");
  sys.add_interface("eth1", "", "", "down");
  const MachineNics found = discover_nics(PciBus(sys.path()));
  ASSERT_EQ(found.nics.size(), 1u);
  EXPECT_THAT(nics_text(found),
              HasSubstr("net 0    eth0, no numa node, 10 Gb/s\nnets by  " + sys.path()));
  const DiscoveredTopology all = discover_topology({{sys.path(), "no-nvml.so"}, "/nonexistent"});
  EXPECT_EQ(read_nccl_topology("this machine", all.xml).all(DeviceKind::port).size(), 1u);
}

TEST(DiscoveredTopology, TakesTwoInterfacesOfOneDeviceForOneWithTwoPorts) {
  const FakeSys sys("topology-ports");
  const std::string way = "pci0000:00/0000:00:03.0/0000:01:00.0";
  sys.add(way, "0x15b3", "0x020000", "-1");
  sys.add_interface("eth0", way + "/virtio0", "-1");
  sys.add_interface("eth1", way + "/virtio1", "");
  std::filesystem::create_directories(sys.path() + "/devices/" + way + "/virtio0");
  std::filesystem::create_directories(sys.path() + "/devices/" + way + "/virtio1");
  const DiscoveredTopology found = discover_topology({{sys.path(), "no-nvml.so"}, "/nonexistent"});
  const Graph graph = read_nccl_topology("this machine", found.xml);
  EXPECT_EQ(graph.all(DeviceKind::nic).size(), 1u) << found.xml;
  EXPECT_EQ(graph.all(DeviceKind::port).size(), 2u);
}

TEST(DiscoveredTopology, SaysNothingOfLinksThatTheSystemDoesNotKnow) {
  const FakeSys sys("topology-unknown");
  sys.add_gpu("pci0000:00/0000:00:03.0", "-1");
  sys.say("0000:00:03.0", "max_link_speed", "Unknown");
  sys.say("0000:00:03.0", "max_link_width", "255");
  const DiscoveredTopology found = discover_topology({{sys.path(), "no-nvml.so"}, "/nonexistent"});
  EXPECT_THAT(found.xml, AllOf(HasSubstr("0000:00:03.0"), Not(HasSubstr("link_"))));
  EXPECT_NO_THROW(read_nccl_topology("this machine", found.xml));
}

TEST(DiscoveredTopology, OfAmdsGpusHasTheLinksThatTheDriverShows) {
  const FakeSys sys("topology-kfd");
  for (const char* const way :
       {"pci0000:00/0000:00:01.0/0000:2f:00.0", "pci0000:80/0000:80:01.0/0000:af:00.0",
        "pci0000:c0/0000:c0:01.0/0000:df:00.0"})
    sys.add(way, "0x1002", "0x038000", "-1", "0x74a1");
  sys.add_kfd_node(0, "cpu_cores_count 64\nsimd_count 0\ngfx_target_version 0\nlocation_id 0");
  const std::string gpu = "simd_count 1216\ngfx_target_version 90402\ndomain 0\nlocation_id ";
  sys.add_kfd_node(1, gpu + std::to_string(0x2f00));
  sys.add_kfd_node(2, gpu + std::to_string(0xaf00));
  sys.add_kfd_node(3, gpu + std::to_string(0xdf00));
  sys.add_kfd_link(1, 0, "type 2\nnode_from 1\nnode_to 0");
  sys.add_kfd_link(1, 1,
                   "type 11\nnode_from 1\nnode_to 2\nmin_bandwidth 50000\nmax_bandwidth 150000");
  sys.add_kfd_link(2, 0,
                   "type 11\nnode_from 2\nnode_to 1\nmin_bandwidth 50000\nmax_bandwidth 150000");
  sys.add_kfd_link(1, 2, "type 11\nnode_from 1\nnode_to 3\nmin_bandwidth 0\nmax_bandwidth 0");
  sys.add_kfd_link(3, 0, "type 11\nnode_from 3\nnode_to 1");
  sys.add_kfd_link(3, 1, "type 11\nnode_from 3\nnode_to 9");
  sys.add_kfd_link(3, 2, "a line that is none");
  const DiscoveredTopology found = discover_topology({{sys.path(), "no-nvml.so"}, "/nonexistent"});
  EXPECT_THAT(found.xml, HasSubstr(R"(
      <gpu dev="0" gcn="gfx942">
        <xgmi target="0000:af:00.0" count="3" tclass="0x038000" />
        <xgmi target="0000:df:00.0" count="1" tclass="0x038000" />
      </gpu>)"))
      << found.xml;
  const Graph graph = read_nccl_topology("this machine", found.xml);
  const Paths paths(graph);
  EXPECT_EQ(paths.between(0, 1).kind, PathKind::nvl);
  EXPECT_EQ(paths.between(0, 1).gb_per_s, 144);
  EXPECT_EQ(paths.between(2, 0).gb_per_s, 48);
  EXPECT_EQ(paths.between(1, 2).kind, PathKind::nvb);
}

TEST(DiscoveredTopology, LeavesOutWhatCannotBe) {
  const FakeSys sys("topology-odd");
  sys.add_gpu("pci0000:00/0000:00:01.0/0000:01:00.0", "2000000");  // no such NUMA node
  sys.say("0000:01:00.0", "max_link_width", "2.5");
  sys.add_interface("eth0", "pci0000:00/0000:00:01.0/0000:01:00.0", "1000");  // of a GPU
  sys.add("pci0000:00/0000:00:02.0/0000:02:00.0", "0x15b3", "0x020000", "0");
  sys.add_interface("eth\x1b[1m", "pci0000:00/0000:00:02.0/0000:02:00.0", "200000000");
  // A device whose name leads to another one, and one behind a controller with a bus of its own.
  std::filesystem::create_directory_symlink("../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0",
                                            sys.path() + "/bus/pci/devices/0000:0a:00.0");
  sys.add_gpu("pci0000:16/0000:16:00.5/pci10000:e0/10000:e0:01.0/10000:e1:00.0", "0");
  const DiscoveredTopology found = discover_topology({{sys.path(), ""}, "/nonexistent"});
  const Graph graph = read_nccl_topology("this machine", found.xml);
  EXPECT_EQ(graph.all(DeviceKind::gpu).size(), 3u) << found.xml;
  EXPECT_EQ(graph.all(DeviceKind::port).size(), 1u);
  EXPECT_THAT(graph.all(DeviceKind::pci), IsEmpty()) << found.xml;
  EXPECT_THAT(found.xml, AllOf(Not(HasSubstr("affinity")), Not(HasSubstr("vendor=\"Gen")),
                               Not(HasSubstr("speed=")), HasSubstr("eth\\x1b[1m")))
      << "it is not this machine, and the speed is none";
  EXPECT_THAT(found.source, AllOf(testing::StartsWith("a copy of /sys, " + sys.path()),
                                  HasSubstr("NVML is not asked")));
}

TEST(DiscoveredTopology, HasNoLinksToGpusThatAreHidden) {
  const FakeSys sys("topology-hidden");
  ::setenv("FAKE_NVML",
           "0000:01:00.0 H100 - *0000:03:00.0,*0000:02:00.0,0000:01:00.0 -\n"
           "0000:02:00.0 H100 - *0000:03:00.0,*0000:01:00.0,0000:05:00.0 -\n",
           1);
  const char* const nvml = std::getenv("TUTTI_TEST_NVML");
  const MachineGpus found = discover_gpus({sys.path(), nvml != nullptr ? nvml : "not built"});
  ::unsetenv("FAKE_NVML");
  ASSERT_EQ(found.gpus.size(), 2u);
  EXPECT_THAT(found.gpus[0].nvlinks, ElementsAre("0000:02:00.0")) << "none is its own";
  EXPECT_THAT(found.gpus[1].nvlinks, ElementsAre("0000:01:00.0", "0000:05:00.0"));
}

TEST(DiscoveredTopology, TakesAnyOtherEndOfAnNvLinkForASwitch) {
  const FakeSys sys("topology-bridge");
  sys.add("pci0000:00/0000:00:00.0", "0x8086", "0x060000", "0");  // as a virtual machine shows it
  sys.add_gpu("pci0000:00/0000:00:05.0", "0");
  sys.add_gpu("pci0000:00/0000:00:06.0", "0");
  ::setenv("FAKE_NVML", "0000:00:05.0 H100 - 0000:00:00.0 -\n0000:00:06.0 H100 - 0000:00:00.0 -\n",
           1);
  const char* const nvml = std::getenv("TUTTI_TEST_NVML");
  const DiscoveredTopology found =
      discover_topology({{sys.path(), nvml != nullptr ? nvml : "not built"}, "/nonexistent"});
  ::unsetenv("FAKE_NVML");
  const Paths paths(read_nccl_topology("this machine", found.xml));
  EXPECT_EQ(paths.between(0, 1).kind, PathKind::nvl) << found.xml;
}

TEST(PciAddresses, AreToldFromOtherNames) {
  for (const char* const good : {"0000:17:00.0", "10000:e1:1f.7", "ffff:ff:1f.1"})
    EXPECT_TRUE(pci_number(good)) << good;
  EXPECT_EQ(pci_number("0000:AB:00.0"), pci_number("00000000:ab:00.0"));
  EXPECT_NE(pci_number("0001:ab:00.0"), pci_number("0000:ab:00.0"));
  EXPECT_NE(pci_number("0000:ab:01.0"), pci_number("0000:ab:00.1"));
  for (const char* const bad :
       {"", "virtio0", "usb1", "1-1:1.0", "pci0000:16", "0000:17:00", "0000:17:00.0.0",
        "0000:17:000.0", "17:00.0", "0000:17:0.00", "0000:17:00.8", "0000:17:20.0", "-000:17:00.0"})
    EXPECT_FALSE(pci_number(bad)) << bad;
}

TEST(Packages, AreThoseOfCpusThatAreAllInOne) {
  const FakeSys sys("packages");
  for (int cpu = 0; cpu < 4; ++cpu)
    sys.add_cpu(1000 + cpu, cpu < 2 ? "0" : "1", cpu < 2 ? "1000-1001" : "1002-1003");
  sys.add_cpu(1004, "-1", "1004");
  sys.add_cpu(1005, "2", "many");
  EXPECT_EQ(package_of({1000}, sys.path()), 0);
  EXPECT_EQ(package_of({1002}, sys.path()), 1);
  EXPECT_EQ(package_of({1004}, sys.path()), std::nullopt) << "the system does not say";
  EXPECT_EQ(package_of({1005}, sys.path()), std::nullopt) << "it says nothing that can be read";
  EXPECT_EQ(package_of({1006}, sys.path()), std::nullopt) << "there is no such cpu";
  EXPECT_EQ(package_of({}, sys.path()), std::nullopt);
  if (sysconf(_SC_NPROCESSORS_ONLN) > 2) {
    EXPECT_EQ(package_of({1002, 1003}, sys.path()), 1);
    EXPECT_EQ(package_of({1001, 1002}, sys.path()), std::nullopt);
  }
}

std::vector<std::string> order_of(const Graph& graph) {
  StepBudget budget("a test", kRingSteps);
  return order_gpus(graph, budget);
}

Graph gpus_with_links(int gpus, const std::vector<std::pair<int, int>>& links) {
  Graph graph;
  graph.devices.push_back({DeviceKind::cpu, "cpu 0", -1, 0, 0, {}});
  for (int gpu = 0; gpu < gpus; ++gpu) {
    graph.devices.push_back({DeviceKind::gpu, "gpu " + std::to_string(gpu), 0, gpu, 0, {}});
    connect(graph, 0, gpu + 1, WireKind::pci, 12);
  }
  for (const auto& [a, b] : links) connect(graph, a + 1, b + 1, WireKind::nvlink, 20);
  return graph;
}

TEST(OrderOfGpus, FollowsTheLinksOfARing) {
  EXPECT_THAT(order_of(gpus_with_links(4, {{0, 2}, {2, 1}, {1, 3}, {3, 0}})),
              testing::AnyOf(ElementsAre("gpu 0", "gpu 2", "gpu 1", "gpu 3"),
                             ElementsAre("gpu 0", "gpu 3", "gpu 1", "gpu 2")));
}

TEST(OrderOfGpus, KeepsPairsTogether) {
  const std::vector<std::string> order = order_of(gpus_with_links(4, {{0, 3}, {1, 2}}));
  ASSERT_EQ(order.size(), 4u);
  const auto at = [&](const char* gpu) {
    return std::find(order.begin(), order.end(), gpu) - order.begin();
  };
  EXPECT_EQ(std::abs(at("gpu 0") - at("gpu 3")) % 2, 1);
  EXPECT_EQ(std::abs(at("gpu 1") - at("gpu 2")), 1);
}

TEST(OrderOfGpus, IsNoneWhereAllPathsAreAlike) {
  EXPECT_THAT(order_of(gpus_with_links(3, {{0, 2}})), IsEmpty()) << "too few";
  EXPECT_THAT(order_of(gpus_with_links(6, {})), IsEmpty()) << "all by the processor";
  Graph joined = gpus_with_links(4, {});
  joined.devices.push_back({DeviceKind::nv_switch, "NVSwitch", -1, 0, 0, {}});
  for (int gpu = 1; gpu <= 4; ++gpu) connect(joined, gpu, 5, WireKind::nvlink, 300);
  EXPECT_THAT(order_of(joined), IsEmpty());
  EXPECT_THAT(order_of(Graph()), IsEmpty());
}

}  // namespace
}  // namespace tutti
