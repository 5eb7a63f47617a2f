// The part of a graph that the best paths between its GPUs use, with whole capacities.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/search/flow.h"
#include "topology/search/paths.h"

namespace tutti {

/// Node g is the g-th GPU of the graph; the nodes after the GPUs are what lies between them. Where
/// data leaves the machine, node `gpus` stands for all other machines.
struct GpuNetwork {
  struct Edge {
    int from = 0;
    int to = 0;
    std::int64_t mb_per_s = 0;  ///< 10^6 bytes a second, of all links from `from` to `to`.
  };

  int gpus = 0;
  int terminals = 0;  ///< The nodes that all have to be reached: the GPUs, and maybe the others.
  int nodes = 0;
  std::vector<Edge> edges;  ///< One at most from one node to another; ordered by ends.
};

/// Returns the capacity of a link in 10^6 bytes a second, at least 0 and at most 10^9.
std::int64_t mb_per_s_of(double gb_per_s);

/// Returns the network of one machine. If `rails` is not empty, it has the limit of each port in
/// 10^9 bytes a second, and the machine's data leaves and enters by the ports.
GpuNetwork gpu_network(const Paths& paths, const std::vector<double>& rails = {});

/// Is a rate as a fraction: `mb_per_s` / `per` 10^6 bytes a second.
struct ExactRate {
  std::int64_t mb_per_s = 0;
  std::int64_t per = 1;

  double gb_per_s() const {
    return static_cast<double>(mb_per_s) / static_cast<double>(per) / 1000;
  }
};

/// Returns the largest rate at which each of the `roots` can send different data to all GPUs at
/// once, where GPUs and what lies between them pass data on. It is the smallest, over all sets of
/// nodes that contain roots but not all GPUs, of what leaves the set divided by the number of its
/// roots (Zhao et al., "ForestColl", 2024, theorem 1), found by Newton's method on cuts. It is 0
/// where some GPU cannot be reached. There are at least two GPUs and one root.
ExactRate best_rate(const GpuNetwork& network, const std::vector<int>& roots, StepBudget& budget);

/// Returns the smallest cut between any two terminals in 10^6 bytes a second, in either direction:
/// no set of rings through all of them carries more than that. There are at least two.
std::int64_t smallest_cut(const GpuNetwork& network, StepBudget& budget);

}  // namespace tutti
