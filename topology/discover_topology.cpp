#include "topology/discover_topology.h"

#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <pugixml.hpp>

#include "topology/discover.h"
#include "topology/discover_nics.h"
#include "topology/first_line.h"
#include "topology/pci_bus.h"
#include "topology/print.h"

namespace tutti {
namespace {

constexpr int kMostNuma = 1 << 16;
constexpr const char* kGpuClass = "0x030200";
constexpr const char* kNicClass = "0x020000";
constexpr const char* kNvSwitchClass = "0x068000";
constexpr const char* kPowerBridgeClass = "0x068001";
constexpr int kMostParallelLinks = 1024;
constexpr std::size_t kLongestWay = 64;

/// Returns the value of the first line "name : value" of /proc/cpuinfo, or an empty text.
std::string line_of(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  constexpr int kMostLines = 64;  // of the first processor
  std::string line;
  for (int read = 0; read < kMostLines && std::getline(file, line) && !line.empty(); ++read) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(name) || colon == std::string::npos ||
        line.find_first_not_of(" \t", name.size()) != colon)
      continue;
    const std::size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? std::string() : line.substr(value);
  }
  return {};
}

/// Returns the kernel's name of the architecture in the words of NCCL.
std::string architecture() {
  utsname names{};
  if (uname(&names) != 0) return {};
  const std::string_view machine = names.machine;
  if (machine == "aarch64") return "arm64";
  return std::string(machine.starts_with("ppc64") ? "ppc64" : machine);
}

/// Returns the cpus as the kernel writes a mask: words of 32 bits, the most significant first.
std::string mask_of(const Cpus& cpus) {
  constexpr int kBits = 32;
  const int words = cpus.empty() ? 1 : *std::max_element(cpus.begin(), cpus.end()) / kBits + 1;
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(words));
  for (const int cpu : cpus)
    mask[static_cast<std::size_t>(cpu / kBits)] |= std::uint32_t{1} << (cpu % kBits);
  std::string text;
  for (auto word = mask.rbegin(); word != mask.rend(); ++word)
    text += fmt::format("{}{:08x}", text.empty() ? "" : ",", *word);
  return text;
}

void set(pugi::xml_node node, const std::string& name, const std::string& value) {
  if (!value.empty()) node.append_attribute(name.c_str()).set_value(value.c_str());
}

/// Writes the XML. Devices come in the order in which they are added, and stand below the PCI
/// switches on their way, each of which is written once.
class Description {
 public:
  explicit Description(const PciBus& bus) : bus_(bus), system_(document_.append_child("system")) {
    system_.append_attribute("version").set_value("1");
  }

  void add(const Machine& machine, const std::string& cpuinfo) {
    if (!machine.described)
      processor_ = {{"arch", architecture()},
                    {"vendor", line_of(cpuinfo, "vendor_id")},
                    {"familyid", line_of(cpuinfo, "cpu family")},
                    {"modelid", line_of(cpuinfo, "model")}};
    for (const Node& node : machine.nodes)
      if (node.kind == NodeKind::numa && !node.cpus.empty()) add_cpu(node.number, node.cpus);
    if (cpus_.empty()) add_cpu(0, machine.cpus());
  }

  void add(const MachineGpus& machine) {
    std::map<std::string_view, std::string> classes;
    for (const GpuNode& gpu : machine.gpus)
      classes[gpu.bus] = device(gpu.bus, gpu.pci, gpu.numa, kGpuClass).attribute("class").value();
    for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
      const GpuNode& gpu = machine.gpus[i];
      pugi::xml_node pci = devices_.at(gpu.bus);
      if (pci.child("gpu")) continue;  // one of several with the same address
      pugi::xml_node node = pci.prepend_child("gpu");
      set(node, "dev", std::to_string(i));
      const bool has_nvlinks = gpu.gcn.empty() && !gpu.nvlinks.empty();
      if (gpu.sm > 0 || has_nvlinks) set(node, "sm", std::to_string(gpu.sm));
      set(node, "gcn", gpu.gcn);
      std::map<std::string_view, int> links;
      for (const std::string& end : gpu.nvlinks) ++links[end];
      for (const auto& [end, count] : links) {
        if (end == gpu.bus) continue;
        pugi::xml_node link = node.append_child(gpu.gcn.empty() ? "nvlink" : "xgmi");
        set(link, "target", std::string(end));
        set(link, "count", std::to_string(std::min(count, kMostParallelLinks)));
        const auto known = classes.find(end);
        set(link, "tclass", known != classes.end() ? known->second : class_of(std::string(end)));
      }
    }
  }

  void add(const MachineNics& machine) {
    int number = 0;
    for (const Nic& nic : machine.nics) {
      // A device has one element, which a GPU's takes.
      const auto known = devices_.find(nic.bus);
      if (known != devices_.end() && known->second.child("gpu")) continue;
      pugi::xml_node place =
          nic.bus.empty() ? cpu(nic.numa) : device(nic.bus, nic.pci, nic.numa, kNicClass);
      pugi::xml_node node = nic.bus.empty() ? pugi::xml_node() : place.child("nic");
      if (!node) node = nic.bus.empty() ? place.append_child("nic") : place.prepend_child("nic");
      for (const NicPort& port : nic.ports) {
        pugi::xml_node net = node.append_child("net");
        set(net, "name", on_one_line(port.name));
        set(net, "dev", std::to_string(number++));
        if (port.megabits > 0) set(net, "speed", std::to_string(port.megabits));
        set(net, "port", std::to_string(port.number));
        if (!port.guid.empty()) set(net, "guid", "0x" + port.guid);
      }
    }
  }

  /// A machine has at least one NUMA node.
  std::string text() {
    cpu(-1);
    std::ostringstream text;
    document_.save(text, "  ");
    return text.str();
  }

 private:
  void add_cpu(int numa, const Cpus& cpus) {
    if (cpus_.contains(numa)) return;
    pugi::xml_node node = system_.append_child("cpu");
    set(node, "numaid", std::to_string(numa));
    if (!cpus.empty()) set(node, "affinity", mask_of(cpus));
    for (const auto& [name, value] : processor_) set(node, name, value);
    cpus_.try_emplace(numa, node);
  }

  /// Returns the element of a NUMA node: the first one for a device of which nobody says where it
  /// is.
  pugi::xml_node cpu(int numa) {
    if (cpus_.empty() && (numa < 0 || numa > kMostNuma)) add_cpu(0, {});
    if (numa < 0 || numa > kMostNuma) return system_.child("cpu");
    if (!cpus_.contains(numa)) add_cpu(numa, {});
    return cpus_.at(numa);
  }

  /// Returns the element of a PCI device, below those of the switches on its way. Two steps of a
  /// way are one switch, the port at which it is entered and the one at which it is left, and are
  /// described by the first, as NCCL does.
  pugi::xml_node device(const std::string& bus, const std::vector<std::string>& way, int numa,
                        const char* class_if_unknown) {
    if (const auto known = devices_.find(bus); known != devices_.end()) return known->second;
    pugi::xml_node place =
        way.size() > 3 && way.size() < kLongestWay
            ? device(way[way.size() - 3], {way.begin(), way.end() - 2}, numa, "0x060400")
            : cpu(numa);
    pugi::xml_node node = place.append_child("pci");
    // The name of a device in a copy of /sys may be that of another one.
    const std::vector<std::string> self = way.empty() || way.back() != bus ? std::vector{bus} : way;
    for (const auto& [name, value] : bus_.attributes(self)) set(node, name, value);
    if (!node.attribute("class")) set(node, "class", class_if_unknown);
    return devices_.emplace(bus, node).first->second;
  }

  /// Returns the class of what NVLinks lead to: what is neither a GPU nor the bridge of a POWER
  /// processor is a switch, which the bus of a virtual machine, for example, does not show.
  std::string class_of(const std::string& end) const {
    const std::string known = first_line(bus_.folder() / end / "class");
    const bool is_gpu = known.starts_with("0x03") || known.starts_with("0x12");
    return is_gpu || known == kPowerBridgeClass ? known : kNvSwitchClass;
  }

  const PciBus& bus_;
  pugi::xml_document document_;
  pugi::xml_node system_;
  std::vector<std::pair<std::string, std::string>> processor_;
  std::map<int, pugi::xml_node> cpus_;
  std::map<std::string, pugi::xml_node, std::less<>> devices_;
};

}  // namespace

DiscoveredTopology discover_topology(const TopologySources& sources) {
  const PciBus bus(sources.gpus.sys);
  Description description(bus);
  std::string from = fmt::format("a copy of /sys, {}", sources.gpus.sys);
  if (sources.gpus.sys == GpuSources().sys) {
    const Machine machine = discover();
    description.add(machine, sources.cpuinfo);
    if (machine.described)
      return {description.text(),
              "another machine, which HWLOC_XMLFILE or HWLOC_SYNTHETIC describes, without its GPUs "
              "and network interfaces"};
    from = fmt::format("this machine, told by {}", machine.source);
  }
  const MachineGpus gpus = discover_gpus(sources.gpus);
  const MachineNics nics = discover_nics(bus);
  description.add(gpus);
  description.add(nics);
  return {description.text(),
          fmt::format("{}; GPUs: {}; network: {}", from, gpus.source, nics.source)};
}

}  // namespace tutti
