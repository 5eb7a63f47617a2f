#include "topology/search/gpu_network.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace tutti {

std::int64_t mb_per_s_of(double gb_per_s) {
  constexpr double kMost = 1e9;
  return static_cast<std::int64_t>(std::llround(std::min(gb_per_s * 1000, kMost)));
}

namespace {

/// Marks the links of the best paths between GPUs and, with `ports`, between GPUs and ports, in
/// both directions.
std::vector<bool> links_between_ends(const Paths& paths, bool ports) {
  const std::vector<Link>& links = paths.links();
  const int ends = paths.gpus() + (ports ? paths.ports() : 0);
  std::vector<bool> used(links.size());
  for (int from = 0; from < ends; ++from)
    for (int to = 0; to < ends; ++to)
      if (from < paths.gpus() || to < paths.gpus())
        for (const int link : paths.between(from, to).links)
          used[static_cast<std::size_t>(link)] = true;
  const std::vector<bool> forward = used;
  for (std::size_t number = 0; number < links.size(); ++number) {
    if (!forward[number]) continue;
    const auto ends_of = [](const Link& link) { return std::tuple(link.from, link.to, link.kind); };
    const Link back{links[number].to, links[number].from, links[number].kind};
    const auto found =
        std::lower_bound(links.begin(), links.end(), back,
                         [&](const Link& a, const Link& b) { return ends_of(a) < ends_of(b); });
    if (found != links.end() && ends_of(*found) == ends_of(back))
      used[static_cast<std::size_t>(found - links.begin())] = true;
  }
  return used;
}

}  // namespace

GpuNetwork gpu_network(const Paths& paths, const std::vector<double>& rails) {
  const bool leaves = !rails.empty();
  assert(!leaves || static_cast<int>(rails.size()) == paths.ports());
  const std::vector<bool> used = links_between_ends(paths, leaves);
  GpuNetwork network;
  network.gpus = paths.gpus();
  network.terminals = network.nodes = network.gpus + (leaves ? 1 : 0);
  std::map<int, int> nodes;
  for (int gpu = 0; gpu < paths.gpus(); ++gpu)
    nodes[paths.ends()[static_cast<std::size_t>(gpu)]] = gpu;
  const auto node_of = [&](int device) {
    const auto [found, added] = nodes.try_emplace(device, network.nodes);
    if (added) ++network.nodes;
    return found->second;
  };
  std::map<std::pair<int, int>, std::int64_t> capacities;
  for (std::size_t number = 0; number < used.size(); ++number) {
    if (!used[number]) continue;
    const Link& link = paths.links()[number];
    const int from = node_of(link.from), to = node_of(link.to);
    capacities[{from, to}] += mb_per_s_of(link.gb_per_s);
  }
  for (std::size_t rail = 0; rail < rails.size(); ++rail) {
    const int port = node_of(paths.ends()[static_cast<std::size_t>(network.gpus) + rail]);
    capacities[{network.gpus, port}] = capacities[{port, network.gpus}] = mb_per_s_of(rails[rail]);
  }
  for (const auto& [ends, capacity] : capacities)
    network.edges.push_back({ends.first, ends.second, capacity});
  return network;
}

ExactRate best_rate(const GpuNetwork& network, const std::vector<int>& roots, StepBudget& budget) {
  assert(network.gpus >= 2 && !roots.empty());
  const int source = network.nodes;
  FlowNetwork flow(network.nodes + 1);
  for (const GpuNetwork::Edge& edge : network.edges) flow.add(edge.from, edge.to, 0);
  const int first_root = static_cast<int>(network.edges.size());
  for (const int root : roots) flow.add(source, root, 0);
  // The rate is too high at first, and each cut that is too small lowers it, until none is.
  ExactRate rate{0, 1};
  for (const GpuNetwork::Edge& edge : network.edges) rate.mb_per_s += edge.mb_per_s;
  for (bool lowered = true; lowered && rate.mb_per_s > 0;) {
    lowered = false;
    for (std::size_t at = 0; at < network.edges.size(); ++at)
      flow.set_capacity(static_cast<int>(at), network.edges[at].mb_per_s * rate.per);
    for (std::size_t at = 0; at < roots.size(); ++at)
      flow.set_capacity(first_root + static_cast<int>(at), rate.mb_per_s);
    const std::int64_t all = rate.mb_per_s * static_cast<std::int64_t>(roots.size());
    for (int gpu = 0; gpu < network.gpus && !lowered; ++gpu) {
      if (flow.max_flow(source, gpu, budget, all) >= all) continue;
      const std::vector<bool> inside = flow.side_of_source();
      ExactRate cut{0, 0};
      for (const int root : roots) cut.per += inside[static_cast<std::size_t>(root)] ? 1 : 0;
      for (const GpuNetwork::Edge& edge : network.edges)
        if (inside[static_cast<std::size_t>(edge.from)] &&
            !inside[static_cast<std::size_t>(edge.to)])
          cut.mb_per_s += edge.mb_per_s;
      assert(cut.per > 0 && cut.mb_per_s * rate.per < rate.mb_per_s * cut.per);
      rate = cut;
      lowered = true;
    }
  }
  return rate;
}

std::int64_t smallest_cut(const GpuNetwork& network, StepBudget& budget) {
  assert(network.terminals >= 2);
  FlowNetwork flow(network.nodes);
  for (const GpuNetwork::Edge& edge : network.edges) flow.add(edge.from, edge.to, edge.mb_per_s);
  std::int64_t least = FlowNetwork::kUnlimited;
  for (int other = 1; other < network.terminals; ++other) {
    least = std::min(least, flow.max_flow(0, other, budget, least));
    least = std::min(least, flow.max_flow(other, 0, budget, least));
  }
  return least;
}

}  // namespace tutti
