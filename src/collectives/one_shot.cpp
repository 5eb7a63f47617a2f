// one_shot: every rank sends all that a peer needs to that peer at once. One message's latency, but
// `ranks` times the bytes: for tiny messages and few ranks.
#include <cassert>

#include "collectives/rank_arithmetic.h"
#include "collectives/verbs.h"

namespace tutti {
namespace {

using namespace collectives;

/// Everyone reduces everything, in the same order. One lane: two would race in place. A barrier's
/// messages are empty: that they come is what they say.
Schedule all_reduce_or_barrier(const PlanRequest& request) {
  ScheduleBuilder plan(request, 1);
  const Verbs lane = plan.lane();
  lane.send(0, others(request.rank, request.ranks));
  const auto result = lane.reduce_copy(in_rank_order(request, 0), 0);
  if (request.what == Collective::all_reduce) result.completes();
  return std::move(plan).finish();
}

Schedule broadcast(const PlanRequest& request) {
  ScheduleBuilder plan(request, 1);
  if (request.rank == request.root)
    plan.lane().copy_send(0, others(request.rank, request.ranks));
  else
    plan.lane().receive(request.root, 0);
  return std::move(plan).finish();
}

Schedule reduce(const PlanRequest& request) {
  ScheduleBuilder plan(request, 1);
  if (request.rank == request.root)
    plan.lane().reduce_copy(in_rank_order(request, 0), 0).completes();
  else
    plan.lane().send(0, {request.root});
  return std::move(plan).finish();
}

bool knows(Collective what, int ranks) {
  return ranks >= 1 && (what == Collective::all_reduce || what == Collective::broadcast ||
                        what == Collective::reduce || what == Collective::barrier);
}

Schedule plan(const PlanRequest& request) {
  assert(knows(request.what, request.ranks));
  if (request.ranks == 1) return plan_alone(request);
  switch (request.what) {
    case Collective::broadcast: return broadcast(request);
    case Collective::reduce: return reduce(request);
    default: return all_reduce_or_barrier(request);
  }
}

}  // namespace

Algorithm one_shot_algorithm() { return {"one_shot", knows, plan}; }

}  // namespace tutti
