#include "topology/search/gpu_order.h"

#include "topology/search/paths.h"
#include "topology/search/rings.h"

namespace tutti {
namespace {

bool all_alike(const Paths& paths) {
  const Path& first = paths.between(0, 1);
  for (int from = 0; from < paths.gpus(); ++from)
    for (int to = 0; to < paths.gpus(); ++to) {
      if (from == to) continue;
      const Path& path = paths.between(from, to);
      if (path.kind != first.kind || path.gb_per_s != first.gb_per_s) return false;
    }
  return true;
}

}  // namespace

std::vector<std::string> order_gpus(const Graph& graph, StepBudget& budget) {
  constexpr int kFewest = 4;  // all rings of three pass by the same links
  const Paths paths(graph);
  if (paths.gpus() < kFewest || all_alike(paths)) return {};
  RingRequest one;
  one.most_rings = 1;
  const RingPlan plan = find_rings(paths, one, budget);
  if (plan.rings.empty()) return {};
  std::vector<std::string> order;
  for (const int gpu : plan.rings.front().gpus) {
    const int device = paths.ends()[static_cast<std::size_t>(gpu)];
    order.push_back(graph.devices[static_cast<std::size_t>(device)].name);
  }
  return order;
}

}  // namespace tutti
