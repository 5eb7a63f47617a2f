// binomial_tree: values go up to the root, results come down, in log2(ranks) messages each. With a
// lane for each direction, pieces go up while earlier ones come down: for small messages, and for
// many ranks.
#include <cassert>

#include "collectives/rank_arithmetic.h"
#include "collectives/verbs.h"

namespace tutti {
namespace {

using namespace collectives;

struct Tree {
  explicit Tree(const PlanRequest& request) {
    const int relative = relative_rank(request.rank, request.root, request.ranks);
    is_root = relative == 0;
    parent = absolute_rank(tree_parent(relative), request.root, request.ranks);
    for (const int child : tree_children(relative, request.ranks))
      children.push_back(absolute_rank(child, request.root, request.ranks));
  }

  /// This rank's input and its subtrees' results, in the order of ranks behind the root.
  std::vector<Operand> subtree() const {
    std::vector<Operand> operands{input(0)};
    for (const int child : children) operands.push_back(peer(child));
    return operands;
  }

  bool is_root;
  int parent;  ///< Itself for the root.
  Peers children;
};

Schedule all_reduce_or_barrier(const PlanRequest& request) {
  const Tree tree(request);
  ScheduleBuilder plan(request, 1);
  const Verbs up = plan.lane();
  if (tree.is_root) {
    const auto result = up.reduce_copy_send(tree.subtree(), 0, tree.children);
    if (request.what == Collective::all_reduce) result.completes();
  } else {
    const auto reduced = up.reduce_send(tree.subtree(), 0, {tree.parent});
    // In place, the result overwrites the input.
    plan.lane().receive_send(tree.parent, 0, tree.children).after(reduced);
  }
  return std::move(plan).finish();
}

Schedule reduce(const PlanRequest& request) {
  const Tree tree(request);
  ScheduleBuilder plan(request, 1);
  if (tree.is_root)
    plan.lane().reduce_copy(tree.subtree(), 0).completes();
  else
    plan.lane().reduce_send(tree.subtree(), 0, {tree.parent});
  return std::move(plan).finish();
}

Schedule broadcast(const PlanRequest& request) {
  const Tree tree(request);
  ScheduleBuilder plan(request, 1);
  if (tree.is_root)
    plan.lane().copy_send(0, tree.children);
  else
    plan.lane().receive_send(tree.parent, 0, tree.children);
  return std::move(plan).finish();
}

bool knows(Collective what, int ranks) {
  return ranks >= 1 && what != Collective::all_gather && what != Collective::reduce_scatter;
}

Schedule plan(const PlanRequest& request) {
  assert(knows(request.what, request.ranks));
  if (request.ranks == 1) return plan_alone(request);
  switch (request.what) {
    case Collective::reduce: return reduce(request);
    case Collective::broadcast: return broadcast(request);
    default: return all_reduce_or_barrier(request);
  }
}

}  // namespace

Algorithm binomial_tree_algorithm() { return {"binomial_tree", knows, plan}; }

}  // namespace tutti
