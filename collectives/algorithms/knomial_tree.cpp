// knomial_tree: a binomial tree's bushier sibling. Half as many levels, each with up to three
// children, which a node serves in one step: for small messages where a message's latency costs
// more than a node's turn.
#include "collectives/algorithms/trees.h"

namespace tutti {
namespace {

using namespace collectives;

constexpr int kRadix = 4;

Schedule plan(const PlanRequest& request) { return plan_knomial(request, kRadix); }

}  // namespace

Algorithm knomial_tree_algorithm() { return {"knomial_tree", knomial_knows, plan}; }

}  // namespace tutti
