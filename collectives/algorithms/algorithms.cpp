#include "collectives/algorithms/algorithms.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "collectives/schedule/semantics.h"

namespace tutti {
namespace {

// Any collective of a single rank: its input is its result.
Schedule plan_alone(const PlanRequest& request) {
  assert(request.ranks == 1 && request.rank == 0);
  ScheduleBuilder plan(request, 1);
  const StepHandle copied = plan.lane().copy(0);
  if (collectives::reduces(request.what)) copied.completes();
  return std::move(plan).finish();
}

}  // namespace

bool Algorithm::knows(Collective what, int ranks) const {
  return ranks >= 1 &&
         std::any_of(plans.begin(), plans.end(), [&](const Plan& one) { return one.what == what; });
}

collectives::Rounds Algorithm::plan_in_rounds(const PlanRequest& request) const {
  const auto found = std::find_if(plans.begin(), plans.end(),
                                  [&](const Plan& one) { return one.what == request.what; });
  assert(found != plans.end() && request.rank >= 0 && request.rank < request.ranks);
  if (request.ranks == 1) return {plan_alone(request)};
  return found->in_rounds != nullptr ? found->in_rounds(request)
                                     : collectives::Rounds{found->plan(request)};
}

Schedule Algorithm::plan(const PlanRequest& request) const {
  return collectives::expand(plan_in_rounds(request));
}

// Each function is defined in the file of its name.
Algorithm ring_algorithm();
Algorithm one_shot_algorithm();
Algorithm all_pairs_algorithm();
Algorithm recursive_doubling_algorithm();
Algorithm binomial_tree_algorithm();
Algorithm double_binary_tree_algorithm();
Algorithm halving_doubling_algorithm();
Algorithm bruck_algorithm();
Algorithm knomial_tree_algorithm();
Algorithm scatter_all_gather_algorithm();
Algorithm hierarchical_algorithm();
Algorithm pairwise_algorithm();

std::span<const Algorithm> algorithms() {
  static const std::array list{
      ring_algorithm(),
      one_shot_algorithm(),
      all_pairs_algorithm(),
      recursive_doubling_algorithm(),
      binomial_tree_algorithm(),
      double_binary_tree_algorithm(),
      halving_doubling_algorithm(),
      bruck_algorithm(),
      knomial_tree_algorithm(),
      scatter_all_gather_algorithm(),
      hierarchical_algorithm(),
      pairwise_algorithm(),
  };
  return list;
}

}  // namespace tutti
