// knomial_tree: a k-nomial tree with radix 4. Compared with a binomial tree, it has half as many
// levels, and a node has up to three children in each, which it serves in one step. This suits
// small messages where the latency of a message costs more than the work of a node.
#include "collectives/algorithms/trees.h"

namespace tutti {
namespace {

using namespace collectives;

constexpr int kRadix = 4;

Schedule plan(const PlanRequest& request) { return plan_knomial(request, kRadix); }

}  // namespace

Algorithm knomial_tree_algorithm() { return {"knomial_tree", knomial_knows, plan}; }

}  // namespace tutti
