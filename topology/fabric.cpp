#include "topology/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include <tutti/error.hpp>

#include "common/json_file.h"

namespace tutti {
namespace {

int ports_of(const Graph& node) { return static_cast<int>(node.all(DeviceKind::port).size()); }

// Returns the bandwidth from a node's port into the network.
double bandwidth_of(const Graph& node, int port) {
  double most = 0;
  for (const Wire& wire : node.wires)
    if (wire.to == port) most += wire.gb_per_s;
  return most;
}

class Expansion {
 public:
  explicit Expansion(const Fabric& fabric)
      : fabric_(fabric), ports_(fabric.node.all(DeviceKind::port)) {}

  Graph run() && {
    graph_.machines = fabric_.nodes;
    for (int node = 0; node < fabric_.nodes; ++node) add_node(node);
    if (fabric_.nodes > 1) add_switches();
    assert(graph_.is_sound());
    return std::move(graph_);
  }

 private:
  void add_node(int node) {
    const int first = static_cast<int>(graph_.devices.size());
    for (const Device& one : fabric_.node.devices) {
      Device& copy = graph_.devices.emplace_back(one);
      copy.name = fmt::format("{}/{}", node, one.name);
      copy.machine = node;
      if (one.parent >= 0) copy.parent += first;
      copy.elements.clear();
    }
    for (Wire wire : fabric_.node.wires) {
      wire.from += first;
      wire.to += first;
      wire.element = {};
      graph_.wires.push_back(std::move(wire));
    }
  }

  int add_switch(std::string name) {
    graph_.devices.push_back({DeviceKind::net_switch, std::move(name), -1, 0, -1, {}});
    return static_cast<int>(graph_.devices.size()) - 1;
  }

  void add_switches() {
    std::vector<int> spines;
    if (fabric_.leaves() > 1)
      for (int spine = 0; spine < fabric_.spines; ++spine)
        spines.push_back(add_switch(fmt::format("spine {}", spine)));
    const int size = static_cast<int>(fabric_.node.devices.size());
    for (int begin = 0; begin < fabric_.nodes; begin += fabric_.nodes_per_leaf)
      for (int rail = 0; rail < fabric_.rails; ++rail) {
        const int leaf =
            add_switch(fmt::format("leaf {} of rail {}", begin / fabric_.nodes_per_leaf, rail));
        double enters = 0;
        const int end = std::min(fabric_.nodes, begin + fabric_.nodes_per_leaf);
        for (int node = begin; node < end; ++node)
          for (std::size_t port = static_cast<std::size_t>(rail); port < ports_.size();
               port += static_cast<std::size_t>(fabric_.rails)) {
            const double bandwidth = bandwidth_of(fabric_.node, ports_[port]);
            enters += bandwidth;
            connect(graph_, node * size + ports_[port], leaf, WireKind::net, bandwidth,
                    fabric_.hop_us);
          }
        for (const int spine : spines)
          connect(graph_, leaf, spine, WireKind::net,
                  enters / fabric_.oversubscription / static_cast<double>(spines.size()),
                  fabric_.hop_us);
      }
  }

  const Fabric& fabric_;
  const std::vector<int> ports_;
  Graph graph_;
};

}  // namespace

Fabric read_fabric(const std::string& name, const std::string& text,
                   const std::function<Graph(const std::string& topology)>& read_node) {
  const nlohmann::json document = parse_json(name, text);
  const JsonValue all(document, name);
  all.allow_only(
      {"nodes", "topology", "rails", "nodes_per_leaf", "spines", "oversubscription", "hop_us"});
  Fabric fabric;
  fabric.nodes = static_cast<int>(all.number("nodes", 1, kMostNodes));
  fabric.node = read_node(all.at("topology").text());
  const int ports = ports_of(fabric.node);
  if (ports == 0 && fabric.nodes > 1)
    all.at("topology").fail("a node of this topology has no port (<net>) to reach the others");
  fabric.rails = static_cast<int>(all.number("rails", 1, std::max(1, ports), std::max(1, ports)));
  fabric.nodes_per_leaf =
      static_cast<int>(all.number("nodes_per_leaf", 1, kMostNodes, fabric.nodes));
  fabric.is_one_leaf = !document.contains("nodes_per_leaf");
  fabric.spines = static_cast<int>(all.number("spines", 1, 1 << 16, fabric.rails));
  fabric.oversubscription = all.real("oversubscription", 0.01, 1000, 1.0);
  fabric.hop_us = all.real("hop_us", 0, 1e6, 0.0);
  return fabric;
}

Graph expand(const Fabric& fabric) {
  assert(fabric.nodes >= 1 && fabric.rails >= 1 && fabric.nodes_per_leaf >= 1);
  if (fabric.nodes == 1) return fabric.node;
  const std::int64_t devices =
      std::int64_t{fabric.nodes} * static_cast<std::int64_t>(fabric.node.devices.size()) +
      fabric.leaves() + fabric.spines;
  if (devices > kMostFabricDevices)
    throw Error(
        ErrorKind::unavailable,
        fmt::format("a fabric of {} nodes has {} devices; at most {} are drawn and searched "
                    "one by one: describe fewer nodes",
                    fabric.nodes, devices, kMostFabricDevices));
  if (fabric.leaves() * fabric.spines > kMostFabricLinks)
    throw Error(
        ErrorKind::unavailable,
        fmt::format("{} leaves and {} spines have more than {} links: describe fewer spines",
                    fabric.leaves(), fabric.spines, kMostFabricLinks));
  return Expansion(fabric).run();
}

}  // namespace tutti
