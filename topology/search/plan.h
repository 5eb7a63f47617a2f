// Declares what can be planned on a topology: paths, rings and trees, as text, JSON and a picture.
#pragma once

#include <optional>
#include <string>

#include "topology/fabric.h"
#include "topology/search/forest.h"
#include "topology/search/paths.h"
#include "topology/search/rings.h"

namespace tutti {

/// Holds what was found on the node of a fabric. Where something was not found, the text beside it
/// says why.
struct TopologyPlan {
  std::optional<Paths> paths;
  std::optional<RingPlan> rings;   ///< Along the rails of all nodes, if there are several.
  std::optional<Forest> trees;     ///< Within a node, from every GPU at once.
  std::optional<Forest> one_root;  ///< Within a node, from GPU `root` alone.
  std::string why_no_paths, why_no_rings, why_no_trees;
  int root = 0;
};

/// Bounds the trees of one root.
inline constexpr int kMostTrees = 8;

/// Plans on the node of a fabric, within the step budgets of rings.h and forest.h. `root` is the
/// number of a GPU; where there is no such GPU there are no trees.
TopologyPlan plan_topology(const Fabric& fabric, int root = 0);

/// Returns the matrix of paths, then rings and trees with their bandwidth and what bounds it.
std::string to_text(const Fabric& fabric, const TopologyPlan& plan);

/// Returns one JSON object: what to_json() says of the node's graph, and a member `plan`.
std::string to_json(const Fabric& fabric, const TopologyPlan& plan);

/// Returns a picture in SVG: GPUs on a circle, the links between them in grey, and each ring in a
/// colour of its own.
std::string to_svg(const Fabric& fabric, const TopologyPlan& plan);

}  // namespace tutti
