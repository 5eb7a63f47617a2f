// double_binary_tree: two trees carry half of the chunks each, and the inner nodes of one are
// leaves of the other, so that every rank receives and sends all the time. It sends as few bytes as
// a ring, in log2(ranks) messages, which suits large buffers and many ranks. (Sanders, Speck,
// Träff: Two-tree algorithms for full bandwidth broadcast, reduction and scan. Parallel Computing
// 35, 2009.)
#include <cassert>

#include "collectives/algorithms/trees.h"
#include "collectives/schedule/rank_arithmetic.h"

namespace tutti {
namespace {

using namespace collectives;

/// Returns one of the two trees. `group` begins with the root, which feeds both trees, and
/// continues with the ranks behind it in order.
Tree tree_of(const Group& group, bool second) {
  const TwoTrees trees{group.size()};
  assert(group.size() >= 2);
  const auto rank_of = [&](int index) { return group.at(index); };
  Tree tree;
  if (group.index() > 0) tree.parent = rank_of(trees.parent(group.index(), second));
  for (const int child : trees.children(group.index(), second))
    tree.children.push_back(rank_of(child));
  assert(tree.parent.has_value() == (group.index() > 0) && tree.children.size() <= 2);
  return tree;
}

Schedule plan(const PlanRequest& request) {
  const Group group = Group::all(request, request.root);
  return plan_trees(request, {tree_of(group, false), tree_of(group, true)});
}

}  // namespace

Algorithm double_binary_tree_algorithm() {
  return {.name = "double_binary_tree",
          .plans = {{Collective::all_reduce, plan},
                    {Collective::reduce, plan},
                    {Collective::broadcast, plan},
                    {Collective::barrier, plan}},
          .numbering = Numbering::near};
}

}  // namespace tutti
