#include "topology/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <map>

#include <tutti/error.hpp>

namespace tutti {
namespace {

constexpr std::size_t kMostRoutedGpus = 256, kMostDevices = 1024;

RouteKind kind_of(WireKind kind) {
  constexpr std::array<RouteKind, kWireKinds> kKinds{RouteKind::pci,  RouteKind::nvlink,
                                                     RouteKind::xgmi, RouteKind::c2c,
                                                     RouteKind::cpus, RouteKind::nic};
  assert(static_cast<std::size_t>(kind) < kKinds.size());
  return kKinds[static_cast<std::size_t>(kind)];
}

/// Finds the widest paths from one device; of equally wide ones the shortest, and then the one
/// whose devices come first.
class WidestPaths {
 public:
  struct Edge {
    int wire, to;
    double gb_per_s;
  };

  WidestPaths(const Graph& node, const std::vector<std::vector<Edge>>& edges, int from)
      : from_(from), best_(node.devices.size()) {
    best_[static_cast<std::size_t>(from)].gb_per_s = std::numeric_limits<double>::infinity();
    best_[static_cast<std::size_t>(from)].hops = 0;
    std::vector<bool> done(node.devices.size());
    for (;;) {
      int next = -1;
      for (int at = 0; at < static_cast<int>(best_.size()); ++at)
        if (!done[static_cast<std::size_t>(at)] && best(at).hops >= 0 &&
            (next < 0 || better(best(at), best(next))))
          next = at;
      if (next < 0) return;
      done[static_cast<std::size_t>(next)] = true;
      const DeviceKind kind = node.devices[static_cast<std::size_t>(next)].kind;
      if (next != from && (kind == DeviceKind::gpu || kind == DeviceKind::port)) continue;
      for (const Edge& edge : edges[static_cast<std::size_t>(next)]) {
        const Best found{std::min(best(next).gb_per_s, edge.gb_per_s), best(next).hops + 1,
                         edge.wire, next};
        Best& known = best_[static_cast<std::size_t>(edge.to)];
        if (!done[static_cast<std::size_t>(edge.to)] && (known.hops < 0 || better(found, known)))
          known = found;
      }
    }
  }

  bool reaches(int device) const { return best(device).hops >= 0; }
  double gb_per_s(int device) const { return best(device).gb_per_s; }
  int hops(int device) const { return best(device).hops; }

  /// Returns the wires on the way to a device that is reached.
  std::vector<int> wires_to(int device) const {
    assert(reaches(device));
    std::vector<int> wires;
    for (int at = device; at != from_; at = best(at).before) wires.push_back(best(at).wire);
    std::reverse(wires.begin(), wires.end());
    return wires;
  }

 private:
  struct Best {
    double gb_per_s = 0;
    int hops = -1;  // -1: it is not reached
    int wire = -1, before = -1;
  };

  const Best& best(int device) const { return best_[static_cast<std::size_t>(device)]; }
  static bool better(const Best& a, const Best& b) {
    return a.gb_per_s > b.gb_per_s || (a.gb_per_s == b.gb_per_s && a.hops < b.hops);
  }

  int from_;
  std::vector<Best> best_;
};

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::unavailable, why); }

}  // namespace

std::string_view to_string(RouteKind kind) {
  constexpr std::array<std::string_view, kRouteKinds> kNames{"pci",  "nvlink", "xgmi", "c2c",
                                                             "cpus", "nic",    "net",  "spine"};
  assert(static_cast<std::size_t>(kind) < kNames.size());
  return kNames[static_cast<std::size_t>(kind)];
}

Routes::Routes(const Fabric& fabric)
    : nodes_(fabric.nodes),
      rails_(fabric.rails),
      nodes_per_leaf_(fabric.nodes_per_leaf),
      oversubscription_(fabric.oversubscription),
      hop_us_(fabric.hop_us) {
  assert(fabric.node.is_sound() && nodes_ >= 1 && rails_ >= 1 && nodes_per_leaf_ >= 1);
  if (fabric.node.devices.size() > kMostDevices)
    refuse(fmt::format("a node has {} devices; at most {} are searched for routes",
                       fabric.node.devices.size(), kMostDevices));
  gpus_ = static_cast<int>(fabric.node.all(DeviceKind::gpu).size());
  if (gpus_ == 0 || static_cast<std::size_t>(gpus_) > kMostRoutedGpus)
    refuse(
        fmt::format("a node has {} GPUs, which are the ranks of the simulation; there must be 1 "
                    "to {}",
                    gpus_, kMostRoutedGpus));
  merge_wires(fabric.node);
  find_paths(fabric.node);
  leaves_ = nodes_ > 1 ? static_cast<std::uint32_t>(fabric.leaves()) : 0;
  const std::uint64_t of_nodes = std::uint64_t(nodes_) * wires_.size(),
                      of_ports = std::uint64_t(nodes_) * port_gb_per_s_.size();
  if (of_nodes + 2 * of_ports + 2 * std::uint64_t{leaves_} > std::numeric_limits<int>::max() ||
      ranks() > std::numeric_limits<int>::max())
    refuse(
        fmt::format("a fabric of {} nodes with {} links each has more links than can be "
                    "numbered: describe fewer nodes",
                    nodes_, wires_.size()));
  first_port_up_ = static_cast<std::uint32_t>(of_nodes);
  first_port_down_ = first_port_up_ + static_cast<std::uint32_t>(of_ports);
  first_leaf_up_ = first_port_down_ + static_cast<std::uint32_t>(of_ports);
  first_leaf_down_ = first_leaf_up_ + leaves_;
}

void Routes::merge_wires(const Graph& node) {
  std::map<std::pair<int, int>, std::size_t> known;
  for (const Wire& wire : node.wires) {
    const auto [found, added] = known.try_emplace({wire.from, wire.to}, wires_.size());
    if (added) wires_.push_back({{kind_of(wire.kind), 0, wire.latency_us}, wire.from, wire.to});
    RouteLink& link = wires_[found->second].link;
    link.gb_per_s += wire.gb_per_s;
    link.latency_us = std::min(link.latency_us, wire.latency_us);
  }
  for (const Device& device : node.devices) devices_.push_back(device.name);
}

void Routes::find_paths(const Graph& node) {
  std::vector<std::vector<WidestPaths::Edge>> edges(node.devices.size());
  for (int wire = 0; wire < static_cast<int>(wires_.size()); ++wire) {
    const NodeLink& link = wires_[static_cast<std::size_t>(wire)];
    edges[static_cast<std::size_t>(link.from)].push_back({wire, link.to, link.link.gb_per_s});
  }
  const std::vector<int> gpus = node.all(DeviceKind::gpu), ports = node.all(DeviceKind::port);
  std::vector<std::vector<int>> nearest;  // by GPU: the ports that are equally near
  for (const int from : gpus) {
    const WidestPaths paths(node, edges, from);
    for (const int to : gpus) {
      if (to != from && !paths.reaches(to))
        refuse(fmt::format("{} does not reach {} without passing through another GPU",
                           devices_[static_cast<std::size_t>(from)],
                           devices_[static_cast<std::size_t>(to)]));
      between_.push_back(to == from ? std::vector<int>{} : paths.wires_to(to));
    }
    auto& best = nearest.emplace_back();
    for (int port = 0; port < static_cast<int>(ports.size()); ++port) {
      const int device = ports[static_cast<std::size_t>(port)];
      if (!paths.reaches(device)) continue;
      const auto rank = [&](int at) { return std::pair(-paths.gb_per_s(at), paths.hops(at)); };
      if (!best.empty()) {
        const int known = ports[static_cast<std::size_t>(best.front())];
        if (rank(known) < rank(device)) continue;
        if (rank(device) < rank(known)) best.clear();
      }
      best.push_back(port);
    }
  }
  choose_ports(gpus, ports, nearest);
  for (std::size_t gpu = 0; gpu < gpus.size() && nodes_ > 1; ++gpu) {
    const int port = ports[static_cast<std::size_t>(port_of_[gpu])];
    out_.push_back(WidestPaths(node, edges, gpus[gpu]).wires_to(port));
    const WidestPaths back(node, edges, port);
    if (!back.reaches(gpus[gpu]))
      refuse(fmt::format("{} does not reach {}", devices_[static_cast<std::size_t>(port)],
                         devices_[static_cast<std::size_t>(gpus[gpu])]));
    back_.push_back(back.wires_to(gpus[gpu]));
  }
}

void Routes::choose_ports(const std::vector<int>& gpus, const std::vector<int>& ports,
                          const std::vector<std::vector<int>>& nearest) {
  for (const int port : ports) {
    double& into = port_gb_per_s_.emplace_back(0);
    for (const NodeLink& link : wires_)
      if (link.to == port) into += link.link.gb_per_s;
  }
  std::map<std::vector<int>, std::size_t> turns;  // the GPUs so far with the same ports
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    if (nearest[gpu].empty()) {
      if (nodes_ > 1)
        refuse(fmt::format("{} reaches no port of its node",
                           devices_[static_cast<std::size_t>(gpus[gpu])]));
      port_of_.push_back(-1);
      continue;
    }
    port_of_.push_back(nearest[gpu][turns[nearest[gpu]]++ % nearest[gpu].size()]);
  }
}

void Routes::find(int from, int to, std::vector<std::uint32_t>& links) const {
  assert(0 <= from && from < ranks() && 0 <= to && to < ranks() && from != to);
  links.clear();
  const int a = from / gpus_, b = to / gpus_, gpu = from % gpus_, other = to % gpus_;
  if (a == b) {
    for (const int wire : between_[static_cast<std::size_t>(gpu) * static_cast<std::size_t>(gpus_) +
                                   static_cast<std::size_t>(other)])
      links.push_back(node_link(a, wire));
    return;
  }
  const int out = port_of_[static_cast<std::size_t>(gpu)],
            in = port_of_[static_cast<std::size_t>(other)];
  const auto ports = static_cast<std::uint32_t>(port_gb_per_s_.size());
  for (const int wire : out_[static_cast<std::size_t>(gpu)]) links.push_back(node_link(a, wire));
  links.push_back(first_port_up_ + static_cast<std::uint32_t>(a) * ports +
                  static_cast<std::uint32_t>(out));
  const std::uint32_t up = leaf_of(a, out), down = leaf_of(b, in);
  if (up != down) {
    links.push_back(first_leaf_up_ + up);
    links.push_back(first_leaf_down_ + down);
  }
  links.push_back(first_port_down_ + static_cast<std::uint32_t>(b) * ports +
                  static_cast<std::uint32_t>(in));
  for (const int wire : back_[static_cast<std::size_t>(other)]) links.push_back(node_link(b, wire));
}

double Routes::enters_leaf(std::uint32_t leaf) const {
  const int begin = static_cast<int>(leaf) / rails_ * nodes_per_leaf_;
  const int nodes = std::min(nodes_per_leaf_, nodes_ - begin);
  double sum = 0;
  for (std::size_t port = leaf % static_cast<std::uint32_t>(rails_); port < port_gb_per_s_.size();
       port += static_cast<std::size_t>(rails_))
    sum += port_gb_per_s_[port];
  return sum * nodes;
}

RouteLink Routes::link(std::uint32_t number) const {
  assert(number < links());
  if (number < first_port_up_) return wires_[number % wires_.size()].link;
  if (number < first_leaf_up_) {
    const std::uint32_t first = number < first_port_down_ ? first_port_up_ : first_port_down_;
    return {RouteKind::net, port_gb_per_s_[(number - first) % port_gb_per_s_.size()], hop_us_};
  }
  const std::uint32_t first = number < first_leaf_down_ ? first_leaf_up_ : first_leaf_down_;
  return {RouteKind::spine, enters_leaf(number - first) / oversubscription_, hop_us_};
}

std::string Routes::name(std::uint32_t number) const {
  assert(number < links());
  if (number < first_port_up_) {
    const NodeLink& wire = wires_[number % wires_.size()];
    return fmt::format("node {}: {} to {}", number / wires_.size(),
                       devices_[static_cast<std::size_t>(wire.from)],
                       devices_[static_cast<std::size_t>(wire.to)]);
  }
  if (number < first_leaf_up_) {
    const bool up = number < first_port_down_;
    const std::uint32_t at = number - (up ? first_port_up_ : first_port_down_);
    return fmt::format("node {}: port {} {} its leaf", at / port_gb_per_s_.size(),
                       at % port_gb_per_s_.size(), up ? "to" : "from");
  }
  const bool up = number < first_leaf_down_;
  const std::uint32_t leaf = number - (up ? first_leaf_up_ : first_leaf_down_);
  return fmt::format("leaf {} of rail {} {} the spines", leaf / static_cast<std::uint32_t>(rails_),
                     leaf % static_cast<std::uint32_t>(rails_), up ? "to" : "from");
}

}  // namespace tutti
