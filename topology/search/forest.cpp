#include "topology/search/forest.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <utility>

#include <tutti/error.hpp>

namespace tutti {
namespace {

/// Returns the network with the smaller of both directions' capacities in each of them: switches
/// can be replaced where as much leaves as enters.
GpuNetwork symmetric(GpuNetwork network) {
  std::map<std::pair<int, int>, std::int64_t> capacities;
  for (const GpuNetwork::Edge& edge : network.edges)
    capacities[{edge.from, edge.to}] = edge.mb_per_s;
  for (GpuNetwork::Edge& edge : network.edges) {
    const auto back = capacities.find({edge.to, edge.from});
    edge.mb_per_s = back == capacities.end() ? 0 : std::min(edge.mb_per_s, back->second);
  }
  return network;
}

/// Returns whether all roots can send `trees` units to every GPU at once.
bool suffices(const GpuNetwork& network, const std::vector<int>& roots, int trees,
              std::int64_t mb_per_s, StepBudget& budget) {
  FlowNetwork flow(network.nodes + 1);
  for (const GpuNetwork::Edge& edge : network.edges)
    flow.add(edge.from, edge.to, edge.mb_per_s / mb_per_s);
  for (const int root : roots) flow.add(network.nodes, root, trees);
  const std::int64_t all = std::int64_t{trees} * static_cast<std::int64_t>(roots.size());
  for (int gpu = 0; gpu < network.gpus; ++gpu)
    if (flow.max_flow(network.nodes, gpu, budget, all) < all) return false;
  return true;
}

/// Returns what one tree carries when all carry as much, and each edge takes the best path.
double rate_of(const Paths& paths, const std::vector<SpanningTree>& trees, TreeUse use) {
  std::vector<int> load(paths.links().size());
  for (const SpanningTree& tree : trees)
    for (const auto& edge : tree.edges)
      for_links(paths, edge, use, [&](std::size_t link) { ++load[link]; });
  double least = 0;
  for (std::size_t link = 0; link < load.size(); ++link) {
    if (load[link] == 0) continue;
    const double share = paths.links()[link].gb_per_s / load[link];
    least = least == 0 ? share : std::min(least, share);
  }
  return least;
}

double bound_of(GpuNetwork network, const std::vector<int>& roots, TreeUse use,
                StepBudget& budget) {
  if (use == TreeUse::both) {
    std::int64_t enters = 0;
    for (const GpuNetwork::Edge& edge : network.edges)
      if (edge.to < network.gpus) enters += edge.mb_per_s;
    const double receives = 2.0 * (network.gpus - 1);
    return std::min(static_cast<double>(smallest_cut(network, budget)),
                    static_cast<double>(enters) / receives) /
           static_cast<double>(roots.size()) / 1000;
  }
  if (use == TreeUse::up)
    for (GpuNetwork::Edge& edge : network.edges) std::swap(edge.from, edge.to);
  return best_rate(network, roots, budget).gb_per_s();
}

/// Improves the trees, and keeps them if they carry more than the best so far.
void keep_better(const Paths& paths, std::vector<SpanningTree> trees, int trees_of_root,
                 TreeUse use, Forest& best, StepBudget& budget) {
  improve_trees(paths, trees, use, budget);
  const double rate = rate_of(paths, trees, use) * trees_of_root;
  // More trees mean more lanes and shorter messages, so they have to carry more.
  if (rate <= best.gb_per_s * 1.001) return;
  best.trees_of_root = trees_of_root;
  best.gb_per_s = rate;
  best.trees = std::move(trees);
}

/// Returns a tree of each root with an edge to every other GPU, or none if there is no path between
/// two of them.
std::vector<SpanningTree> stars(const Paths& paths, const std::vector<int>& roots) {
  std::vector<SpanningTree> trees;
  for (const int root : roots) {
    SpanningTree& star = trees.emplace_back(SpanningTree{root, {}});
    for (int gpu = 0; gpu < paths.gpus(); ++gpu) {
      if (paths.between(root, gpu).kind == PathKind::none ||
          paths.between(gpu, root).kind == PathKind::none)
        return {};
      if (gpu != root) star.edges.push_back({root, gpu});
    }
  }
  return trees;
}

/// Packs so many trees of each root. Returns whether there are any.
bool pack(const Paths& paths, const GpuNetwork& network, const std::vector<int>& roots, int trees,
          TreeUse use, Forest& best, StepBudget& budget) {
  const std::int64_t unit = largest_tree(network, roots, trees, budget);
  if (unit == 0) return false;
  keep_better(paths,
              pack_trees(split_switches(network, roots, trees, unit, budget), roots, trees, budget),
              trees, use, best, budget);
  return true;
}

}  // namespace

int SpanningTree::depth() const {
  std::map<int, int> depths{{root, 0}};
  int most = 0;
  for (const Edge& edge : edges) most = std::max(most, depths[edge.to] = depths.at(edge.from) + 1);
  return most;
}

std::int64_t largest_tree(const GpuNetwork& network, const std::vector<int>& roots, int trees,
                          StepBudget& budget) {
  std::int64_t fits = 0, too_large = 1;
  for (const GpuNetwork::Edge& edge : network.edges)
    too_large = std::max(too_large, edge.mb_per_s + 1);
  while (too_large - fits > 1) {
    const std::int64_t middle = fits + (too_large - fits) / 2;
    (suffices(network, roots, trees, middle, budget) ? fits : too_large) = middle;
  }
  return fits;
}

Forest pack_forest(const Paths& paths, const std::vector<int>& roots, int most_trees, TreeUse use,
                   StepBudget& budget) {
  assert(!roots.empty() && most_trees >= 1);
  if (paths.gpus() < 2)
    throw Error(ErrorKind::unavailable, "trees need a topology of at least two GPUs");
  const GpuNetwork all = gpu_network(paths);
  Forest best;
  best.bound_gb_per_s = bound_of(all, roots, use, budget);
  const GpuNetwork network = symmetric(all);
  const std::vector<SpanningTree> simple = stars(paths, roots);
  if (!simple.empty() && best.bound_gb_per_s > 0) keep_better(paths, simple, 1, use, best, budget);
  for (int trees = 1; trees <= most_trees; ++trees) {
    try {
      if (!pack(paths, network, roots, trees, use, best, budget)) break;
    } catch (const Error& error) {
      // Where the steps are spent, the best of what was found is good enough.
      if (best.trees.empty() || error.kind() != ErrorKind::unavailable) throw;
      break;
    }
  }
  if (best.trees.empty())
    throw Error(ErrorKind::unavailable,
                "the GPUs of this topology do not all reach each other, in both directions, by "
                "links of at least 1 MB/s");
  return best;
}

}  // namespace tutti
