// Prints a graph as text, as JSON and as a picture.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "topology/graph.h"
#include "topology/print.h"

namespace tutti {
namespace {

const Device& device(const Graph& graph, int at) {
  return graph.devices[static_cast<std::size_t>(at)];
}

/// Returns the name that the system has for a port, such as "mlx5_0", or an empty text.
std::string name_in_system(const Device& device) {
  if (device.elements.empty()) return {};
  for (const auto& [name, value] : device.elements.back().attributes)
    if (name == "name") return value;
  return {};
}

std::string title(const Device& device) {
  switch (device.kind) {
    case DeviceKind::gpu: return fmt::format("GPU {} ({})", device.number, device.name);
    case DeviceKind::nic: return fmt::format("NIC {}", device.name);
    case DeviceKind::pci: return fmt::format("PCI {}", device.name);
    case DeviceKind::port: {
      const std::string name = name_in_system(device);
      return name.empty() ? device.name : fmt::format("{} ({})", device.name, on_one_line(name));
    }
    default: return device.name;
  }
}

/// Takes all wires of one kind from one device to another as one.
struct Bundle {
  int wires = 0;
  double gb_per_s = 0;
};
using Bundles = std::map<std::pair<int, WireKind>, Bundle>;  // by destination and kind

std::vector<Bundles> bundles_of(const Graph& graph) {
  std::vector<Bundles> all(graph.devices.size());
  for (const Wire& wire : graph.wires) {
    Bundle& bundle = all[static_cast<std::size_t>(wire.from)][{wire.to, wire.kind}];
    ++bundle.wires;
    bundle.gb_per_s += wire.gb_per_s;
  }
  return all;
}

class Tree {
 public:
  explicit Tree(const Graph& graph)
      : graph_(graph), bundles_(bundles_of(graph)), children_(graph.devices.size()) {
    for (std::size_t at = 0; at < graph.devices.size(); ++at)
      if (const int parent = graph.devices[at].parent; parent >= 0)
        children_[static_cast<std::size_t>(parent)].push_back(static_cast<int>(at));
  }

  std::string text() && {
    for (std::size_t at = 0; at < graph_.devices.size(); ++at)
      if (graph_.devices[at].parent < 0) add(static_cast<int>(at), 0);
    return std::move(text_);
  }

 private:
  // The depth of a graph from a file is bounded by its reader.
  void add(int at, int depth) {
    const Device& self = device(graph_, at);
    const Bundles& bundles = bundles_[static_cast<std::size_t>(at)];
    std::string line = fmt::format("{:{}}{}", "", 2 * depth, title(self));
    for (const auto& [to, bundle] : bundles)
      if (to.first == self.parent && (to.second == WireKind::pci || self.kind == DeviceKind::port))
        line += fmt::format(", {:.4g} GB/s", bundle.gb_per_s);
    for (const auto& [to, bundle] : bundles) {
      const Device& other = device(graph_, to.first);
      if (to.second == WireKind::pci || to.first == self.parent || other.parent == at) continue;
      const std::string name =
          other.kind == DeviceKind::gpu ? fmt::format("GPU {}", other.number) : title(other);
      line += fmt::format("; {} {} {:.4g} GB/s", to_string(to.second), name, bundle.gb_per_s);
    }
    text_ += line + '\n';
    for (const int child : children_[static_cast<std::size_t>(at)]) add(child, depth + 1);
  }

  const Graph& graph_;
  std::vector<Bundles> bundles_;
  std::vector<std::vector<int>> children_;
  std::string text_;
};

std::string counts_text(const Graph& graph) {
  std::array<int, kDeviceKinds> devices{};
  for (const Device& one : graph.devices) ++devices[static_cast<std::size_t>(one.kind)];
  std::string text;
  for (int kind = 0; kind < kDeviceKinds; ++kind)
    if (const int count = devices[static_cast<std::size_t>(kind)]; count > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count,
                          to_string(static_cast<DeviceKind>(kind)));
  return text + '\n';
}

std::string dot_text(std::string_view text) {
  std::string quoted;
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') quoted += '\\';
    quoted += letter;
  }
  return quoted;
}

std::string_view colour_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::gpu: return "palegreen";
    case DeviceKind::cpu: return "lightblue";
    case DeviceKind::nic:
    case DeviceKind::port: return "khaki";
    case DeviceKind::pci: return "white";
    default: return "lightgrey";
  }
}

std::string_view style_of(WireKind kind) {
  switch (kind) {
    case WireKind::nvlink:
    case WireKind::xgmi: return "color=darkgreen, penwidth=2";
    case WireKind::net: return "color=goldenrod";
    case WireKind::cpus: return "color=blue, style=dashed";
    default: return "color=grey40";
  }
}

}  // namespace

std::string to_text(const Graph& graph) { return counts_text(graph) + Tree(graph).text(); }

std::string to_json(const Graph& graph) {
  nlohmann::ordered_json devices = nlohmann::ordered_json::array();
  for (const Device& one : graph.devices)
    devices.push_back({{"kind", to_string(one.kind)},
                       {"name", one.name},
                       {"parent", one.parent},
                       {"number", one.number},
                       {"machine", one.machine}});
  nlohmann::ordered_json wires = nlohmann::ordered_json::array();
  for (const Wire& wire : graph.wires)
    wires.push_back({{"from", wire.from},
                     {"to", wire.to},
                     {"kind", to_string(wire.kind)},
                     {"gb_per_s", wire.gb_per_s},
                     {"latency_us", wire.latency_us}});
  const nlohmann::ordered_json all{
      {"machines", graph.machines}, {"devices", devices}, {"wires", wires}};
  // Names come from files, which may hold bytes that are no UTF-8.
  return all.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

std::string to_dot(const Graph& graph) {
  std::string text =
      "graph topology {\n  layout=dot;\n  node [shape=box, style=filled, fontname=\"sans\"];\n"
      "  edge [fontname=\"sans\", fontsize=9];\n";
  for (int machine = -1; machine < graph.machines; ++machine) {
    std::string nodes;
    for (std::size_t at = 0; at < graph.devices.size(); ++at)
      if (const Device& one = graph.devices[at]; one.machine == machine)
        nodes += fmt::format("    d{} [label=\"{}\", fillcolor={}];\n", at, dot_text(title(one)),
                             colour_of(one.kind));
    if (nodes.empty()) continue;
    text += machine < 0
                ? nodes
                : fmt::format("  subgraph cluster_{} {{\n    label=\"machine {}\";\n{}  }}\n",
                              machine, machine, nodes);
  }
  const std::vector<Bundles> bundles = bundles_of(graph);
  for (std::size_t from = 0; from < bundles.size(); ++from)
    for (const auto& [to, bundle] : bundles[from]) {
      // Both directions are one line of the picture; it is drawn from the device that comes first.
      const Bundles& back = bundles[static_cast<std::size_t>(to.first)];
      const bool both = back.contains({static_cast<int>(from), to.second});
      if (both && static_cast<std::size_t>(to.first) < from) continue;
      text += fmt::format("  d{} -- d{} [label=\"{}{:.4g}\", {}{}];\n", from, to.first,
                          bundle.wires > 1 ? fmt::format("{}x ", bundle.wires) : "",
                          bundle.gb_per_s, style_of(to.second), both ? "" : ", dir=forward");
    }
  return text + "}\n";
}

}  // namespace tutti
