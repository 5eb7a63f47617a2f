#include "topology/search/paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <map>
#include <tuple>

#include <tutti/error.hpp>

namespace tutti {
namespace {

DeviceKind kind_of(const Graph& graph, int device) {
  return graph.devices[static_cast<std::size_t>(device)].kind;
}

bool joins_gpus(WireKind kind) { return kind == WireKind::nvlink || kind == WireKind::xgmi; }

/// Returns the best kind that a path over this link can have.
PathKind kind_of(const Graph& graph, const Link& link) {
  const DeviceKind from = kind_of(graph, link.from), to = kind_of(graph, link.to);
  const auto is = [&](DeviceKind kind) { return from == kind || to == kind; };
  switch (link.kind) {
    case WireKind::nvlink:
    case WireKind::xgmi: return PathKind::nvl;
    case WireKind::c2c: return PathKind::c2c;
    case WireKind::cpus: return PathKind::sys;
    case WireKind::net: return is(DeviceKind::net_switch) ? PathKind::net : PathKind::loc;
    case WireKind::pci: break;
  }
  if (is(DeviceKind::cpu)) return PathKind::phb;
  return from == DeviceKind::pci && to == DeviceKind::pci ? PathKind::pxb : PathKind::pix;
}

/// Searches from one device, each time over the links that paths of one kind may use.
class Search {
 public:
  Search(const Graph& graph, const std::vector<Link>& links, const std::vector<int>& first_link)
      : graph_(graph), links_(links), first_link_(first_link), reached_(graph.devices.size()) {}

  /// Finds the widest of the shortest paths from `start` to every device.
  void run(int start, PathKind most) {
    std::fill(reached_.begin(), reached_.end(), Reached{});
    reached_[static_cast<std::size_t>(start)] = {0, std::numeric_limits<double>::infinity(), -1};
    std::vector<int> level{start};
    for (int hops = 1; !level.empty(); ++hops) {
      std::vector<int> next;
      for (const int at : level) extend(at, hops, most, next);
      level = std::move(next);
    }
  }

  bool reaches(int device) const { return reached_[static_cast<std::size_t>(device)].hops >= 0; }

  Path path_to(int device, PathKind kind) const {
    Path path{kind, 0, 0, {}};
    if (reached_[static_cast<std::size_t>(device)].hops > 0)
      path.gb_per_s = reached_[static_cast<std::size_t>(device)].gb_per_s;
    for (int at = device; reached_[static_cast<std::size_t>(at)].link >= 0;) {
      const int link = reached_[static_cast<std::size_t>(at)].link;
      path.links.push_back(link);
      path.latency_us += links_[static_cast<std::size_t>(link)].latency_us;
      at = links_[static_cast<std::size_t>(link)].from;
    }
    std::reverse(path.links.begin(), path.links.end());
    return path;
  }

 private:
  struct Reached {
    int hops = -1;
    double gb_per_s = 0;
    int link = -1;  // the last one of the path
  };

  void extend(int at, int hops, PathKind most, std::vector<int>& next) {
    const Reached here = reached_[static_cast<std::size_t>(at)];
    const bool passes_on = hops > 1 && kind_of(graph_, at) == DeviceKind::gpu;
    if (passes_on && (most != PathKind::nvb || hops > 2)) return;
    if (passes_on && !joins_gpus(links_[static_cast<std::size_t>(here.link)].kind)) return;
    const auto index = static_cast<std::size_t>(at);
    for (int number = first_link_[index]; number < first_link_[index + 1]; ++number) {
      const Link& link = links_[static_cast<std::size_t>(number)];
      if (kind_of(graph_, link) > most) continue;
      if (passes_on && !(joins_gpus(link.kind) && kind_of(graph_, link.to) == DeviceKind::gpu))
        continue;
      Reached& there = reached_[static_cast<std::size_t>(link.to)];
      if (there.hops >= 0 && there.hops < hops) continue;
      const double width = std::min(here.gb_per_s, link.gb_per_s);
      if (there.hops < 0)
        next.push_back(link.to);
      else if (width <= there.gb_per_s)
        continue;
      there = {hops, width, number};
    }
  }

  const Graph& graph_;
  const std::vector<Link>& links_;
  const std::vector<int>& first_link_;  // of each device, and their number
  std::vector<Reached> reached_;        // by device
};

}  // namespace

std::string_view to_string(PathKind kind) {
  constexpr std::array<std::string_view, kPathKinds> kNames{"LOC", "NVL", "NVB", "C2C", "PIX",
                                                            "PXB", "PHB", "SYS", "NET", "DIS"};
  assert(static_cast<std::size_t>(kind) < kNames.size());
  return kNames[static_cast<std::size_t>(kind)];
}

std::vector<Link> links_of(const Graph& graph) {
  std::map<std::tuple<int, int, WireKind>, Link> found;
  for (const Wire& wire : graph.wires) {
    Link& link = found[{wire.from, wire.to, wire.kind}];
    link = {wire.from, wire.to, wire.kind, link.gb_per_s + wire.gb_per_s,
            std::max(link.latency_us, wire.latency_us)};
  }
  std::vector<Link> links;
  links.reserve(found.size());
  for (const auto& [key, link] : found) links.push_back(link);
  return links;
}

Paths::Paths(const Graph& graph)
    : ends_(graph.all(DeviceKind::gpu)),
      gpus_(static_cast<int>(ends_.size())),
      links_(links_of(graph)) {
  assert(graph.is_sound());
  const std::vector<int> ports = graph.all(DeviceKind::port);
  ends_.insert(ends_.end(), ports.begin(), ports.end());
  if (ends_.size() > kMostEnds || ends_.size() * links_.size() > kMostSteps)
    throw Error(ErrorKind::unavailable,
                fmt::format("paths are not searched between {} GPUs and ports over {} links: at "
                            "most {} ends, and {} for ends times links",
                            ends_.size(), links_.size(), kMostEnds, kMostSteps));
  std::vector<int> first_link(graph.devices.size() + 1);
  for (const Link& link : links_) ++first_link[static_cast<std::size_t>(link.from) + 1];
  for (std::size_t at = 1; at < first_link.size(); ++at) first_link[at] += first_link[at - 1];
  paths_.resize(ends_.size() * ends_.size());
  for (int end = 0; end < static_cast<int>(ends_.size()); ++end) find_from(end, graph, first_link);
}

void Paths::find_from(int end, const Graph& graph, const std::vector<int>& first_link) {
  Search search(graph, links_, first_link);
  const std::size_t row = static_cast<std::size_t>(end) * ends_.size();
  std::size_t missing = ends_.size();
  for (int kind = 0; kind < static_cast<int>(PathKind::none) && missing > 0; ++kind) {
    const auto most = static_cast<PathKind>(kind);
    search.run(ends_[static_cast<std::size_t>(end)], most);
    for (std::size_t to = 0; to < ends_.size(); ++to)
      if (paths_[row + to].kind == PathKind::none && search.reaches(ends_[to])) {
        paths_[row + to] = search.path_to(ends_[to], most);
        --missing;
      }
  }
}

const Path& Paths::between(int from, int to) const {
  assert(from >= 0 && to >= 0);
  return paths_.at(static_cast<std::size_t>(from) * ends_.size() + static_cast<std::size_t>(to));
}

}  // namespace tutti
