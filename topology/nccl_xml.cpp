#include "topology/nccl_xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <sstream>
#include <utility>

#include <tutti/error.hpp>

#include "common/text.h"
#include "common/xml_file.h"

namespace tutti {
namespace {

constexpr double kSameDevice = 5000;  // GB/s, more than any link: NCCL's LOC_BW

Element element_of(pugi::xml_node node) {
  Element element{node.name(), {}};
  for (const pugi::xml_attribute attribute : node.attributes())
    element.attributes.emplace_back(attribute.name(), attribute.value());
  return element;
}

/// Returns 10^9 bytes a second: three quarters of the wire's rate, as NCCL assumes.
double pci_bandwidth(std::string_view speed, std::int64_t width) {
  double transfers =
      0;  // 10^9 a second on each lane; the text goes on with " GT/s" or " GT/s PCIe"
  std::from_chars(speed.data(), speed.data() + speed.size(), transfers);
  int hundred_megabits = 60;  // of PCI 3.0, which NCCL assumes where nothing is said
  for (const auto& [rate, usable] : std::array<std::pair<double, int>, 7>{
           {{2.5, 15}, {5, 30}, {8, 60}, {16, 120}, {32, 240}, {64, 480}, {128, 960}}})
    if (transfers == rate) hundred_megabits = usable;
  return static_cast<double>(width == 0 ? 16 : width) * hundred_megabits / 80.0;
}

/// Returns the bandwidth of one NVLink of a GPU of compute capability `sm` / 10.
double nvlink_bandwidth(std::int64_t sm) {
  if (sm >= 100) return 40.1;
  if (sm >= 90) return 20.6;
  if (sm == 86) return 12;
  if (sm >= 70) return 20;
  return sm >= 60 ? 18 : 20;
}

/// Returns the bandwidth of one xGMI link of a GPU of architecture `gcn`, for example "gfx942",
/// "90a" or "908".
double xgmi_bandwidth(std::string_view gcn) {
  if (gcn.starts_with("gfx")) gcn.remove_prefix(3);
  if (gcn.starts_with("94") || gcn.starts_with("95")) return 48;
  return gcn == "90a" || gcn == "910" ? 36 : 24;
}

/// Returns the bandwidth between two NUMA nodes of a machine with such processors.
double cpus_bandwidth(pugi::xml_node cpu) {
  const std::string_view arch = cpu.attribute("arch").value();
  const std::string_view vendor = cpu.attribute("vendor").value();
  if (arch == "ppc64") return 32;
  if (arch == "arm64") return 6;
  if (vendor == "AuthenticAMD") return 16;
  if (vendor != "GenuineIntel") return arch == "x86_64" ? 6 : kSameDevice;
  const int model = cpu.attribute("modelid").as_int();
  return model >= 0xcf ? 40 : model >= 0x8f ? 22 : model >= 0x55 ? 10 : 6;
}

class TopologyReader {
 public:
  explicit TopologyReader(const XmlFile& xml) : xml_(xml) {
    graph_.system = element_of(xml.root());
  }

  Graph read() && {
    double between_cpus = kSameDevice;
    for (const pugi::xml_node node : elements(xml_.root(), {"cpu"})) {
      between_cpus = std::min(between_cpus, cpus_bandwidth(node));
      read_cpu(node);
    }
    const std::vector<int> cpus = graph_.all(DeviceKind::cpu);
    if (cpus.empty()) xml_.fail(xml_.root(), "there is no <cpu>");
    if (cpus.size() > kMostCpus)
      xml_.fail(xml_.root(),
                fmt::format("there are {} <cpu>; at most {} are read", cpus.size(), kMostCpus));
    for (std::size_t a = 0; a < cpus.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        connect(graph_, cpus[b], cpus[a], WireKind::cpus, between_cpus);
    for (const auto& [gpu, link] : links_) add_link(gpu, link);
    return std::move(graph_);
  }

 private:
  static constexpr std::size_t kMostCpus = 256;

  // Returns the elements below `parent`, and fails at one that has no place there.
  std::vector<pugi::xml_node> elements(pugi::xml_node parent,
                                       std::initializer_list<std::string_view> known) const {
    std::vector<pugi::xml_node> found;
    for (const pugi::xml_node node : parent.children()) {
      if (node.type() != pugi::node_element) continue;
      if (std::find(known.begin(), known.end(), node.name()) == known.end())
        xml_.fail(node, fmt::format("<{}> has no place in <{}>", shown(node.name()),
                                    shown(parent.name())));
      found.push_back(node);
    }
    return found;
  }

  int add(pugi::xml_node node, DeviceKind kind, std::string name, int parent, int number) {
    const int at = static_cast<int>(graph_.devices.size());
    if (at == kMostDevices)
      xml_.fail(node, fmt::format("there are more than {} devices", kMostDevices));
    if (!by_name_.try_emplace(name, at).second)
      xml_.fail(node, fmt::format("{} is described twice", shown(name)));
    graph_.devices.push_back({kind, std::move(name), parent, number, 0, {element_of(node)}});
    return at;
  }

  Device& device(int at) { return graph_.devices[static_cast<std::size_t>(at)]; }

  void read_cpu(pugi::xml_node node) {
    const auto numa = static_cast<int>(xml_.number(node, "numaid", -1, 1 << 20));
    const std::string_view host = node.attribute("host_hash").value();
    std::string name = fmt::format("cpu {}", numa);
    if (!host.empty()) name += fmt::format(" of {}", host);
    const int cpu = add(node, DeviceKind::cpu, std::move(name), -1, numa);
    for (const pugi::xml_node below : elements(node, {"pci", "nic"}))
      if (std::string_view(below.name()) == "pci")
        read_pci(below, cpu, 1);
      else
        read_plain_nic(below, cpu);
  }

  // Reads a network interface that is no PCI device. It is not slower than its ports.
  void read_plain_nic(pugi::xml_node node, int cpu) {
    const int nic = add(node, DeviceKind::nic, fmt::format("nic {}", ++plain_nics_), cpu, 0);
    connect(graph_, cpu, nic, WireKind::pci, kSameDevice);
    read_ports(node, nic);
  }

  // A GPU has class 03 (display) or 12 (accelerator), a network interface 02.
  static DeviceKind kind_of(pugi::xml_node pci) {
    const std::string_view code = pci.attribute("class").value();
    if (pci.child("gpu") || ((code.starts_with("0x03") || code.starts_with("0x12")) &&
                             !pci.child("pci") && !pci.child("nic")))
      return DeviceKind::gpu;
    return pci.child("nic") || code.starts_with("0x02") ? DeviceKind::nic : DeviceKind::pci;
  }

  void read_pci(pugi::xml_node node, int parent, int depth) {
    if (depth > kMostNestedSwitches)
      xml_.fail(node, fmt::format("more than {} PCI devices are nested", kMostNestedSwitches));
    const DeviceKind kind = kind_of(node);
    const int number = kind == DeviceKind::gpu ? gpus_++ : 0;
    const int self = add(node, kind, std::string(xml_.text(node, "busid")), parent, number);
    const double bandwidth = pci_bandwidth(node.attribute("link_speed").value(),
                                           xml_.number(node, "link_width", 0, 64, 16));
    connect(graph_, parent, self, WireKind::pci, bandwidth);
    // The device's own GPU or interface is read before the devices below it, whatever their order
    // in the file, so that a graph that is written and read again has the same numbers.
    const std::vector<pugi::xml_node> below = elements(node, {"pci", "gpu", "nic", "pcilink"});
    const auto named = [](pugi::xml_node one, std::string_view name) { return one.name() == name; };
    bool described = false;
    for (const pugi::xml_node one : below) {
      if (named(one, "pci") || named(one, "pcilink")) continue;
      if (std::exchange(described, true))
        xml_.fail(one, "a PCI device is one GPU or one network interface");
      device(self).elements.push_back(element_of(one));
      named(one, "gpu") ? read_gpu(one, self) : read_ports(one, self);
    }
    for (const pugi::xml_node one : below)
      if (named(one, "pcilink")) links_.emplace_back(self, one);
    for (const pugi::xml_node one : below)
      if (named(one, "pci")) read_pci(one, self, depth + 1);
  }

  void read_gpu(pugi::xml_node node, int self) {
    device(self).number =
        static_cast<int>(xml_.number(node, "dev", -1, 1 << 20, device(self).number));
    int links = 0;
    for (const pugi::xml_node link : elements(node, {"nvlink", "xgmi", "c2c"})) {
      if (++links > kMostGpuLinks)
        xml_.fail(link, fmt::format("a GPU has more than {} links", kMostGpuLinks));
      links_.emplace_back(self, link);
    }
  }

  void read_ports(pugi::xml_node node, int nic) {
    for (const pugi::xml_node net : elements(node, {"net"})) {
      const int number = static_cast<int>(xml_.number(net, "dev", -1, 1 << 20, ports_));
      const int port = add(net, DeviceKind::port, fmt::format("net {}", ports_++), nic, number);
      // NCCL takes 10 Gb/s where the speed is not known.
      const auto megabits = xml_.number(net, "speed", -1, 100'000'000, 10'000);
      const double latency = net.attribute("latency").as_double();
      if (!(latency >= 0 && latency < 1e9)) xml_.fail(net, "the latency is no number from 0 on");
      connect(graph_, nic, port, WireKind::net,
              static_cast<double>(megabits <= 0 ? 10'000 : megabits) / 8000, latency);
    }
  }

  void add_link(int self, pugi::xml_node node) {
    const std::string_view what = node.name();
    const pugi::xml_node gpu = node.parent();
    const std::int64_t count = xml_.number(node, "count", 1, 1024, 1);
    if (what == "c2c") {
      const std::int64_t megabytes = xml_.number(node, "bw", 1, 100'000'000);
      return add_wires(self, cpu_of(self), WireKind::c2c,
                       static_cast<double>(megabytes * count) / 1000, node, true);
    }
    const std::string target(xml_.text(node, "target"));
    const auto found = by_name_.find(target);
    const int other = found == by_name_.end() ? -1 : found->second;
    if (other == self) xml_.fail(node, "the link leads to where it begins");
    if (what == "pcilink") {
      if (other >= 0) add_wires(self, other, WireKind::pci, kSameDevice, node, false);
      return;
    }
    const bool xgmi = what == "xgmi";
    const double bandwidth =
        static_cast<double>(count) * (xgmi ? xgmi_bandwidth(gpu.attribute("gcn").value())
                                           : nvlink_bandwidth(xml_.number(gpu, "sm", 0, 1000)));
    const WireKind kind = xgmi ? WireKind::xgmi : WireKind::nvlink;
    const std::string_view code = node.attribute("tclass").value();
    if (other >= 0 && device(other).kind == DeviceKind::gpu)
      add_wires(self, other, kind, bandwidth, node, false);
    else if (code == "0x068000")
      add_wires(self, nv_switch(), kind, bandwidth, node, true);
    else if (code == "0x068001")  // the bridge of a POWER processor
      add_wires(self, cpu_of(self), kind, bandwidth, node, true);
  }

  // The file names a link between two GPUs at both of them, but one to another device at the GPU.
  void add_wires(int from, int to, WireKind kind, double bandwidth, pugi::xml_node node,
                 bool both) {
    graph_.wires.push_back({from, to, kind, bandwidth, 0, element_of(node)});
    if (both) graph_.wires.push_back({to, from, kind, bandwidth, 0, {}});
  }

  int cpu_of(int at) {
    while (device(at).parent >= 0) at = device(at).parent;
    return at;
  }

  int nv_switch() {
    if (nv_switch_ < 0) {
      nv_switch_ = static_cast<int>(graph_.devices.size());
      graph_.devices.push_back({DeviceKind::nv_switch, "NVSwitch", -1, 0, 0, {}});
    }
    return nv_switch_;
  }

  const XmlFile& xml_;
  Graph graph_;
  std::map<std::string, int, std::less<>> by_name_;
  std::vector<std::pair<int, pugi::xml_node>> links_;  // from the device to what the element names
  int gpus_ = 0, ports_ = 0, plain_nics_ = 0;
  int nv_switch_ = -1;
};

pugi::xml_node append(pugi::xml_node parent, const Element& element) {
  pugi::xml_node node = parent.append_child(element.name.c_str());
  for (const auto& [name, value] : element.attributes)
    node.append_attribute(name.c_str()).set_value(value.c_str());
  return node;
}

}  // namespace

Graph read_nccl_topology(const std::string& name, std::string text) {
  const XmlFile xml(name, std::move(text), "system");
  Graph graph = TopologyReader(xml).read();
  if (!graph.is_sound()) xml.fail(xml.root(), "a device has the name of another one");
  return graph;
}

std::string write_nccl_topology(const Graph& graph) {
  if (graph.machines != 1 || graph.system.name.empty())
    throw Error(ErrorKind::usage,
                "NCCL's topology files describe one machine, from such a file; write JSON");
  pugi::xml_document document;
  const pugi::xml_node system = append(document.root(), graph.system);
  // The devices below one in the PCI tree are in its outermost element; its ports and links are in
  // its innermost one.
  std::vector<pugi::xml_node> outermost(graph.devices.size()), innermost(graph.devices.size());
  for (std::size_t at = 0; at < graph.devices.size(); ++at) {
    const Device& device = graph.devices[at];
    if (device.elements.empty()) continue;  // an NVSwitch, which links name
    const auto parent = static_cast<std::size_t>(device.parent);
    const bool is_port = device.kind == DeviceKind::port;
    pugi::xml_node node = device.parent < 0 ? system : (is_port ? innermost : outermost)[parent];
    for (const Element& element : device.elements) {
      node = append(node, element);
      if (!outermost[at]) outermost[at] = node;
    }
    innermost[at] = node;
  }
  for (const Wire& wire : graph.wires)
    if (const std::string& name = wire.element.name; !name.empty())
      append((name == "pcilink" ? outermost : innermost)[static_cast<std::size_t>(wire.from)],
             wire.element);
  std::ostringstream text;
  document.save(text, "  ");
  return text.str();
}

}  // namespace tutti
