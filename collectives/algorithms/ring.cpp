// ring: every rank communicates only with its two neighbours. It moves the fewest bytes that are
// possible, in about `ranks` (all_gather, reduce_scatter) or twice `ranks` (all_reduce) sequential
// messages, which suits large buffers. Stage s works on the chunk on which the predecessor has
// worked in stage s - 1. With a lane for each stage, all stages work on different pieces at once.
// Each lane costs the engine a look at each turn, so beyond kStagedRanks the stages share lanes,
// and are planned in rounds.
#include <algorithm>
#include <cassert>

#include "collectives/algorithms/algorithms.h"
#include "collectives/schedule/rank_arithmetic.h"
#include "collectives/schedule/rounds.h"

namespace tutti {
namespace {

using namespace collectives;

constexpr int kStagedRanks = 8;

struct Ring {
  explicit Ring(const PlanRequest& request)
      : rank(request.rank),
        ranks(request.ranks),
        previous(ring_previous(rank, ranks)),
        next(ring_next(rank, ranks)) {
    assert(ranks >= 2 && 0 <= rank && rank < ranks);
  }

  int chunk(int stage) const { return ring_chunk(rank, stage, ranks); }

  int rank;
  int ranks;
  int previous;
  int next;
};

/// Stage s receives on channel s - 1 and sends on channel s.
Schedule staged_all_reduce(const PlanRequest& request) {
  const Ring ring(request);
  const int last = ring.ranks - 1;  // the stage that completes a chunk
  ScheduleBuilder plan(request, ring.ranks);

  std::vector<StepHandle> reads;  // the steps that read this rank's input, by stage
  reads.push_back(plan.lane(0, 0).send(ring.chunk(0), {ring.next}));
  for (int stage = 1; stage < last; ++stage)
    reads.push_back(plan.lane(stage - 1, stage)
                        .receive_reduce_send(ring.previous, ring.chunk(stage), {ring.next}));
  plan.lane(last - 1, last)
      .receive_reduce_copy_send(ring.previous, ring.chunk(last), {ring.next})
      .completes();

  // In place, a finished chunk overwrites input that an earlier stage must have read.
  for (int stage = last + 1; stage < 2 * last; ++stage)
    plan.lane(stage - 1, stage)
        .receive_send(ring.previous, ring.chunk(stage), {ring.next})
        .after(reads[stage - ring.ranks]);
  plan.lane(2 * last - 1).receive(ring.previous, ring.chunk(2 * last)).after(reads[last - 1]);
  return std::move(plan).finish();
}

/// The first and the last stage are steps of their own; all stages between are rounds of one step.
Repeat stages_between(const Ring& ring, int lane) {
  assert(ring.ranks > kStagedRanks);
  return {.lane = lane, .first = 1, .count = ring.ranks - 2, .shift = {.chunk = -1}};
}

/// reduce_scatter on one lane, then all_gather on another.
Rounds two_lane_all_reduce(const PlanRequest& request) {
  const Ring ring(request);
  const int last = ring.ranks - 1;
  ScheduleBuilder plan(request, ring.ranks);
  const Verbs reduce = plan.lane(0, 0);
  reduce.send(ring.chunk(1), {ring.next});
  reduce.receive_reduce_send(ring.previous, ring.chunk(2), {ring.next});
  reduce.receive_reduce(ring.previous, ring.rank).completes();
  const Verbs gather = plan.lane(1, 1);
  gather.send_output(ring.rank, {ring.next});
  gather.receive_send(ring.previous, ring.chunk(1), {ring.next});
  gather.receive(ring.previous, ring.chunk(last));
  gather.starts_after(reduce);
  return {std::move(plan).finish(), {stages_between(ring, 0), stages_between(ring, 1)}};
}

Rounds all_reduce(const PlanRequest& request) {
  if (request.ranks <= kStagedRanks) return {staged_all_reduce(request)};
  return two_lane_all_reduce(request);
}

/// The lanes of a ring's stages: one for each of up to kStagedRanks ranks, otherwise one for all,
/// on which the stages between the first and the last are written once.
class StageLanes {
 public:
  explicit StageLanes(const PlanRequest& request)
      : ring_(request), plan_(request, ring_.ranks), staged_(ring_.ranks <= kStagedRanks) {}

  Verbs at(int stage) {
    assert(0 <= stage && stage <= last());
    if (staged_) return plan_.lane(std::max(stage - 1, 0), stage);
    if (stage == 0) shared_.push_back(plan_.lane());
    return shared_.front();
  }
  int last() const { return ring_.ranks - 1; }
  /// The stages from 1 to before this one are to be written.
  int written() const { return staged_ ? last() : 2; }

  Rounds finish() && {
    if (staged_) return {std::move(plan_).finish()};
    return {std::move(plan_).finish(), {stages_between(ring_, 0)}};
  }

 private:
  const Ring ring_;
  ScheduleBuilder plan_;
  bool staged_;
  std::vector<Verbs> shared_;
};

Rounds all_gather(const PlanRequest& request) {
  const Ring ring(request);
  StageLanes lanes(request);
  lanes.at(0).copy_send(ring.rank, {ring.next});
  for (int stage = 1; stage < lanes.written(); ++stage)
    lanes.at(stage).receive_send(ring.previous, ring.chunk(stage), {ring.next});
  lanes.at(lanes.last()).receive(ring.previous, ring.chunk(lanes.last()));
  return std::move(lanes).finish();
}

/// Like the first half of all_reduce, one chunk further: the last stage ends with the rank's own.
Rounds reduce_scatter(const PlanRequest& request) {
  const Ring ring(request);
  StageLanes lanes(request);
  lanes.at(0).send(ring.chunk(1), {ring.next});
  for (int stage = 1; stage < lanes.written(); ++stage)
    lanes.at(stage).receive_reduce_send(ring.previous, ring.chunk(stage + 1), {ring.next});
  lanes.at(lanes.last()).receive_reduce(ring.previous, ring.rank).completes();
  return std::move(lanes).finish();
}

/// A chain from the root around the ring, in which pieces follow each other.
Schedule broadcast(const PlanRequest& request) {
  const Ring ring(request);
  ScheduleBuilder plan(request, 1);
  const Verbs lane = plan.lane();
  if (ring.rank == request.root)
    lane.copy_send(0, {ring.next});
  else if (ring.next == request.root)
    lane.receive(ring.previous, 0);
  else
    lane.receive_send(ring.previous, 0, {ring.next});
  return std::move(plan).finish();
}

/// A chain that begins behind the root and ends at the root.
Schedule reduce(const PlanRequest& request) {
  const Ring ring(request);
  ScheduleBuilder plan(request, 1);
  const Verbs lane = plan.lane();
  if (ring.rank == request.root)
    lane.receive_reduce(ring.previous, 0).completes();
  else if (ring.previous == request.root)
    lane.send(0, {ring.next});
  else
    lane.receive_reduce_send(ring.previous, 0, {ring.next});
  return std::move(plan).finish();
}

}  // namespace

Algorithm ring_algorithm() {
  return {.name = "ring",
          .plans = {{Collective::all_gather, nullptr, all_gather},
                    {Collective::reduce_scatter, nullptr, reduce_scatter},
                    {Collective::broadcast, broadcast},
                    {Collective::reduce, reduce},
                    {Collective::all_reduce, nullptr, all_reduce}},
          .numbering = Numbering::near};
}

}  // namespace tutti
