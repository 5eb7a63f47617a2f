#include "topology/search/plan.h"

#include <fmt/format.h>

#include <numeric>

#include <tutti/error.hpp>

namespace tutti {
namespace {

/// Returns what `search` finds, or why it finds nothing.
template <typename Found, typename Search>
void try_to(std::optional<Found>& found, std::string& why_not, Search search) {
  try {
    found = search();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unavailable) throw;
    why_not = error.what();
  }
}

}  // namespace

TopologyPlan plan_topology(const Fabric& fabric, int root) {
  TopologyPlan plan;
  plan.root = root;
  try_to(plan.paths, plan.why_no_paths, [&] { return Paths(fabric.node); });
  if (!plan.paths) {
    plan.why_no_rings = plan.why_no_trees = "there are no paths";
    return plan;
  }
  try_to(plan.rings, plan.why_no_rings, [&] {
    StepBudget budget("the search for rings", kRingSteps);
    return find_rings(*plan.paths, ring_request(fabric), budget);
  });
  if (root < 0 || root >= plan.paths->gpus()) {
    plan.why_no_trees = fmt::format("there is no GPU {} for a root", root);
    return plan;
  }
  std::vector<int> gpus(static_cast<std::size_t>(plan.paths->gpus()));
  std::iota(gpus.begin(), gpus.end(), 0);
  const auto forest = [&](const std::vector<int>& roots) {
    StepBudget budget("the search for trees", kForestSteps);
    return pack_forest(*plan.paths, roots, kMostTrees, TreeUse::down, budget);
  };
  try_to(plan.one_root, plan.why_no_trees, [&] { return forest({root}); });
  if (plan.one_root) try_to(plan.trees, plan.why_no_trees, [&] { return forest(gpus); });
  return plan;
}

}  // namespace tutti
