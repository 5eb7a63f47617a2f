// knomial_tree: a binomial tree's bushier sibling. Half as many levels, each with up to three
// children, which a node serves in one step: for small messages where a message's latency costs
// more than a node's turn.
#include "collectives/trees.h"

namespace tutti {
namespace {

using namespace collectives;

constexpr int kRadix = 4;

Schedule plan(const PlanRequest& request) {
  return plan_trees(request, {knomial_tree(Group::all(request, request.root), kRadix)});
}

}  // namespace

Algorithm knomial_tree_algorithm() { return {"knomial_tree", trees_know, plan}; }

}  // namespace tutti
