// one_shot: every rank sends all data that a peer needs to that peer at once. This takes the
// latency of one message, but reductions and broadcasts move `ranks` times the bytes. It suits tiny
// messages and few ranks, and gather and scatter of any size.

#include "collectives/algorithms/algorithms.h"
#include "collectives/schedule/rank_arithmetic.h"

namespace tutti {
namespace {

using namespace collectives;

/// Every rank reduces all inputs, in the same order. There is one lane, since two would race in
/// place. The messages of a barrier are empty: their arrival is the information.
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

/// The root receives each block directly from its owner, in the order of ranks behind the root.
Schedule gather(const PlanRequest& request) {
  ScheduleBuilder plan(request, request.ranks);
  const Verbs lane = plan.lane();
  if (request.rank == request.root) {
    lane.copy(request.rank);
    for (const int owner : others(request.rank, request.ranks)) lane.receive(owner, owner);
  } else {
    lane.send(request.rank, {request.root});
  }
  return std::move(plan).finish();
}

/// The steps of gather in reverse order.
Schedule scatter(const PlanRequest& request) {
  ScheduleBuilder plan(request, request.ranks);
  const Verbs lane = plan.lane();
  if (request.rank == request.root) {
    for (const int owner : others(request.rank, request.ranks)) lane.send(owner, {owner});
    lane.copy(request.rank);
  } else {
    lane.receive(request.root, request.rank);
  }
  return std::move(plan).finish();
}

}  // namespace

Algorithm one_shot_algorithm() {
  return {"one_shot",
          {{Collective::broadcast, broadcast},
           {Collective::reduce, reduce},
           {Collective::gather, gather},
           {Collective::scatter, scatter},
           {Collective::all_reduce, all_reduce_or_barrier},
           {Collective::barrier, all_reduce_or_barrier}},
          true,
          false,
          true};
}

}  // namespace tutti
