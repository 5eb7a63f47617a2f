// Trees over ranks, and the collectives that send values up and down these trees.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "collectives/algorithms/stages.h"

namespace tutti::collectives {

/// One rank's place in a tree of ranks.
struct Tree {
  std::optional<int> parent;  ///< None at the root.
  Peers children;
};

/// Returns the k-nomial tree over a group, rooted at its first member. In base `radix`, the index
/// of a parent is that of its child with the lowest digit that is not 0 replaced by 0. The tree has
/// ceil(log_radix(size)) levels, and a node has at most radix - 1 children in each.
Tree knomial_tree(const Group& group, int radix);

/// A tree that carries one chunk of each piece.
struct ChunkTree {
  int chunk;
  Tree tree;
};

/// The lanes of a tree's all_reduce: `up` has its first steps on this rank, `last` its last ones.
struct UpAndDown {
  Verbs up;
  Verbs last;
};

/// Plans an all_reduce (or barrier) of each chunk of `from` into the output. Values go up on one
/// lane and down on another, so that pieces go up while earlier ones come down. If a rank is in
/// several trees, it handles them one after the other; it must be the root of all of them or of
/// none.
UpAndDown tree_all_reduce(ScheduleBuilder& plan, int channel, std::span<const ChunkTree> trees,
                          Place from);

/// all_reduce, reduce, broadcast or barrier, chunk t of a piece over tree t, on lanes of its own.
Schedule plan_trees(const PlanRequest& request, const std::vector<Tree>& trees);

}  // namespace tutti::collectives
