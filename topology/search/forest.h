// Packs spanning trees into a graph, so that as much data as possible flows from their roots to all
// GPUs at once.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/search/flow.h"
#include "topology/search/gpu_network.h"
#include "topology/search/paths.h"

namespace tutti {

/// A tree that reaches every GPU from its root. Numbers are those of GPUs.
struct SpanningTree {
  struct Edge {
    int from = 0;
    int to = 0;
  };
  int root = 0;
  std::vector<Edge>
      edges;  ///< Ordered so that an edge comes after the one that reaches its `from`.

  int depth() const;  ///< The most edges from the root to a GPU.
};

/// Says in which direction data moves along the edges of trees: from the root to all GPUs
/// (broadcast, all_gather), from all GPUs to the root (reduce, reduce_scatter), or both at once
/// (all_reduce).
enum class TreeUse : std::uint8_t { down, up, both };

struct Forest {
  int trees_of_root = 0;  ///< Each root has as many, and each of them carries as much.
  /// Says what all trees of one root carry together, 10^9 bytes a second, while all roots send: no
  /// link is loaded beyond its bandwidth when each edge takes the best path between its GPUs.
  double gb_per_s = 0;
  /// Nothing can carry more. Down, it is best_rate() of the graph, and up that of the graph turned
  /// round. Where data moves both ways, the sum over all roots is at most the smallest cut between
  /// two GPUs, and at most what enters all n GPUs divided by 2 (n - 1), since so many messages of
  /// each element are received (Patarasuk and Yuan 2009).
  double bound_gb_per_s = 0;
  std::vector<SpanningTree> trees;  ///< Those of the first root, then those of the next.
};

/// Packs trees. Switches are replaced by edges between GPUs that keep every cut large enough, and
/// trees grow edge by edge as long as what is left suffices for the others (Zhao et al.,
/// "ForestColl: Throughput-Optimal Collective Communications on Heterogeneous Network Fabrics",
/// 2024; Berczi and Frank 2010). Bandwidths are rounded to whole multiples of a tree's, for each
/// number of trees up to `most_trees`, and the number that carries most is taken, of those for
/// which the budget suffices. The result is the same on every rank. Throws `unavailable` if a GPU
/// cannot be reached from another one, for fewer than two GPUs, and if the budget does not suffice
/// at all.
Forest pack_forest(const Paths& paths, const std::vector<int>& roots, int most_trees, TreeUse use,
                   StepBudget& budget);

/// Steps that suffice for the machines that there are, with up to 16 GPUs and their switches.
inline constexpr std::int64_t kForestSteps = std::int64_t{1} << 31;

// --- The parts, for tests ---

/// Holds capacities between GPUs alone, in units of a tree: `units[from * gpus + to]`.
struct TreeUnits {
  explicit TreeUnits(int gpu_count) : gpus(gpu_count) {}

  int gpus;
  std::vector<std::int64_t> units;

  std::int64_t& at(int from, int to) { return units[index(from, to)]; }
  std::int64_t at(int from, int to) const { return units[index(from, to)]; }

 private:
  std::size_t index(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(gpus) +
           static_cast<std::size_t>(to);
  }
};

/// Returns the largest tree, in 10^6 bytes a second, of which each root may have `trees` side by
/// side; 0 if there is none. The network has the same capacity in both directions.
std::int64_t largest_tree(const GpuNetwork& network, const std::vector<int>& roots, int trees,
                          StepBudget& budget);
/// Replaces what lies between the GPUs by edges between them, for trees of `mb_per_s`.
TreeUnits split_switches(const GpuNetwork& network, const std::vector<int>& roots, int trees,
                         std::int64_t mb_per_s, StepBudget& budget);
/// Packs `trees` trees of each root into the units, which suffice.
std::vector<SpanningTree> pack_trees(TreeUnits units, const std::vector<int>& roots, int trees,
                                     StepBudget& budget);
/// Replaces trees by others with the same root, so that each carries more where edges take the best
/// paths; never makes it worse. There is a path from each GPU to each other one.
void improve_trees(const Paths& paths, std::vector<SpanningTree>& trees, TreeUse use,
                   StepBudget& budget);
/// Calls visit(link) for each link that an edge of a tree uses, as often as it does.
template <typename Visit>
void for_links(const Paths& paths, const SpanningTree::Edge& edge, TreeUse use, Visit visit) {
  if (use != TreeUse::up)
    for (const int link : paths.between(edge.from, edge.to).links)
      visit(static_cast<std::size_t>(link));
  if (use != TreeUse::down)
    for (const int link : paths.between(edge.to, edge.from).links)
      visit(static_cast<std::size_t>(link));
}

}  // namespace tutti
