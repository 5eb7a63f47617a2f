// Trees over ranks, and the collectives that go up and down them.
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

/// A tree over a group, rooted at its first member: a parent lacks its child's lowest digit but 0,
/// to base `radix`. ceil(log_radix(size)) levels; a node has at most radix - 1 children a level.
Tree knomial_tree(const Group& group, int radix);

/// A tree that carries one chunk of the piece.
struct ChunkTree {
  int chunk;
  Tree tree;
};

/// The lanes of a tree's all_reduce: where it begins, and where it ends for this rank.
struct UpAndDown {
  Verbs up;
  Verbs last;
};

/// all_reduce (or barrier) of each chunk of `from` into the output: up on one lane, down on
/// another, so that pieces go up while earlier ones come down. One after the other where a rank is
/// in several trees: it must be the root of all of them or of none.
UpAndDown tree_all_reduce(ScheduleBuilder& plan, int channel, std::span<const ChunkTree> trees,
                          Place from);

/// all_reduce, reduce, broadcast or barrier, chunk t of a piece over tree t, on lanes of its own.
Schedule plan_trees(const PlanRequest& request, const std::vector<Tree>& trees);

/// What plan_trees() plans.
bool trees_know(Collective what, int ranks);

/// Any of these, or gather or scatter, over the k-nomial tree of all ranks. Blocks go up and down
/// in messages of whole subtrees.
Schedule plan_knomial(const PlanRequest& request, int radix);
bool knomial_knows(Collective what, int ranks);

}  // namespace tutti::collectives
