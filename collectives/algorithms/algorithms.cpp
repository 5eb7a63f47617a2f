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

// Asserts that an operand of one of tutti's own algorithms names chunks or a peer that exist.
void assert_sound(const Schedule& schedule, const Step& step, const Operand& operand) {
  assert(operand.index >= 0);
  switch (operand.place) {
    case Place::input:
    case Place::output: assert(operand.index + step.count <= schedule.chunks); break;
    case Place::scratch: assert(operand.index + step.count <= schedule.scratch_chunks); break;
    case Place::peer: assert(operand.index < schedule.ranks && operand.index != schedule.rank);
  }
}

// Asserts what can be seen in one rank's schedule alone; the verifier, which tests run for all
// ranks, proves the rest.
void assert_sound(const Schedule& schedule, const PlanRequest& request) {
  assert(schedule.what == request.what && schedule.ranks == request.ranks);
  assert(schedule.rank == request.rank && schedule.chunks >= 1 && schedule.scratch_chunks >= 0);
  assert(schedule.layout == collectives::layout_of(request.what) && schedule.widest >= 1);
  assert(schedule.root == (collectives::has_root(request.what) ? request.root : 0));
  for (const Lane& lane : schedule.lanes) {
    assert(lane.receives_on >= 0 && lane.sends_on >= 0);
    for (const Step& step : lane.steps) {
      assert(step.count >= 1 && step.count <= schedule.widest && !step.in.empty());
      assert(step.chunk == kAnyChunk || (step.chunk >= 0 && step.chunk < schedule.chunks));
      assert(step.after.lane < static_cast<int>(schedule.lanes.size()));
      for (const Operand& operand : step.in) assert_sound(schedule, step, operand);
      for (const Operand& operand : step.out) assert_sound(schedule, step, operand);
    }
  }
}

}  // namespace

bool Algorithm::knows(Collective what, int ranks) const {
  return ranks >= 1 &&
         std::any_of(plans.begin(), plans.end(), [&](const Plan& one) { return one.what == what; });
}

collectives::Rounds Algorithm::plan_in_rounds(const PlanRequest& request) const {
  assert(request.rank >= 0 && request.rank < request.ranks);
  assert(!collectives::has_root(request.what) ||
         (request.root >= 0 && request.root < request.ranks));
  if (request.ranks == 1) return {plan_alone(request)};
  const collectives::Renumbering renumbering(request, numbering);
  if (renumbering.needed()) {
    collectives::Rounds planned = plan_as_numbered(renumbering.request());
    if (collectives::Renumbering::possible(planned.written))
      return renumbering.with_ranks(std::move(planned));
  }
  return plan_as_numbered(request);
}

collectives::Rounds Algorithm::plan_as_numbered(const PlanRequest& request) const {
  const auto found = std::find_if(plans.begin(), plans.end(),
                                  [&](const Plan& one) { return one.what == request.what; });
  assert(found != plans.end());
  return found->in_rounds != nullptr ? found->in_rounds(request)
                                     : collectives::Rounds{found->plan(request)};
}

Schedule Algorithm::plan(const PlanRequest& request) const {
  Schedule schedule = collectives::expand(plan_in_rounds(request));
  assert_sound(schedule, request);
  return schedule;
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
  static_assert(list.size() < 1u << 31, "the highest bit marks a program's own algorithm");
  return list;
}

bool is_built_in_algorithm(std::string_view name) {
  const auto all = algorithms();
  return name == "auto" || std::any_of(all.begin(), all.end(), [&](const Algorithm& algorithm) {
           return algorithm.name == name;
         });
}

}  // namespace tutti
