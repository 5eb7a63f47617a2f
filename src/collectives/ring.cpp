// ring: every rank talks to its two neighbours alone. Moves the least bytes that a rank can move,
// in about `ranks` (all_gather, reduce_scatter) or twice `ranks` (all_reduce) messages in a row:
// for large buffers.
//
// Stage s works on the chunk that the predecessor has worked on in stage s - 1. With a lane for
// each stage, all stages work on different pieces at once; a lane costs the engine a look at each
// turn, so beyond kStagedRanks the stages share lanes.
#include "collectives/rank_arithmetic.h"
#include "collectives/verbs.h"

namespace tutti {
namespace {

using namespace collectives;

constexpr int kStagedRanks = 8;

struct Ring {
  explicit Ring(const PlanRequest& request)
      : rank(request.rank),
        ranks(request.ranks),
        previous(ring_previous(rank, ranks)),
        next(ring_next(rank, ranks)) {}

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

  std::vector<StepHandle> reads;  // of this rank's input, by stage
  reads.push_back(plan.lane(0, 0).send(ring.chunk(0), {ring.next}));
  for (int stage = 1; stage < last; ++stage)
    reads.push_back(plan.lane(stage - 1, stage)
                        .receive_reduce_send(ring.previous, ring.chunk(stage), {ring.next}));
  plan.lane(last - 1, last)
      .receive_reduce_copy_send(ring.previous, ring.chunk(last), {ring.next})
      .completes();

  // In place, a finished chunk overwrites what an earlier stage has read.
  for (int stage = last + 1; stage < 2 * last; ++stage)
    plan.lane(stage - 1, stage)
        .receive_send(ring.previous, ring.chunk(stage), {ring.next})
        .after(reads[stage - ring.ranks]);
  plan.lane(2 * last - 1).receive(ring.previous, ring.chunk(2 * last)).after(reads[last - 1]);
  return std::move(plan).finish();
}

/// One lane reduces on channel 0, one gathers on channel 1.
Schedule two_lane_all_reduce(const PlanRequest& request) {
  const Ring ring(request);
  const int last = ring.ranks - 1;
  ScheduleBuilder plan(request, ring.ranks);

  const Verbs reduce = plan.lane(0, 0);
  reduce.send(ring.chunk(0), {ring.next});
  for (int stage = 1; stage < last; ++stage)
    reduce.receive_reduce_send(ring.previous, ring.chunk(stage), {ring.next});
  const StepHandle reduced = reduce.receive_reduce(ring.previous, ring.chunk(last)).completes();

  const Verbs gather = plan.lane(1, 1);
  gather.send_output(ring.chunk(last), {ring.next}).after(reduced);
  for (int stage = last + 1; stage < 2 * last; ++stage)
    gather.receive_send(ring.previous, ring.chunk(stage), {ring.next});
  gather.receive(ring.previous, ring.chunk(2 * last));
  return std::move(plan).finish();
}

bool knows(Collective what, int ranks) { return what == Collective::all_reduce && ranks >= 1; }

Schedule plan(const PlanRequest& request) {
  if (request.ranks == 1) return plan_alone(request);
  return request.ranks <= kStagedRanks ? staged_all_reduce(request) : two_lane_all_reduce(request);
}

}  // namespace

Algorithm ring_algorithm() { return {"ring", knows, plan}; }

}  // namespace tutti
