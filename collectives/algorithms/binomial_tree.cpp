// binomial_tree: values go up a tree to the root and results come down, in log2(ranks) messages
// each. With a lane for each direction, pieces go up while earlier ones come down. This suits small
// messages and many ranks.
#include "collectives/algorithms/trees.h"

namespace tutti {
namespace {

using namespace collectives;

Schedule plan(const PlanRequest& request) { return plan_knomial(request, 2); }

}  // namespace

Algorithm binomial_tree_algorithm() { return {"binomial_tree", knomial_knows, plan}; }

}  // namespace tutti
