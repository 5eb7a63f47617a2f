// bruck: ceil(log2(ranks)) rounds for any number of ranks, each of which reaches twice as far as
// the one before. This suits small blocks. (Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient
// algorithms for all-to-all communications. IEEE TPDS 8, 1997.) Blocks are received directly at
// their places, so no rotation is needed at the beginning or the end.
#include <algorithm>
#include <cassert>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/stages.h"
#include "collectives/schedule/rank_arithmetic.h"
#include "collectives/schedule/semantics.h"

namespace tutti {
namespace {

using namespace collectives;

/// Before each round a rank holds the blocks of `held` ranks, beginning with its own, and sends
/// them to the rank `held` places before it. Each round doubles `held`.
Schedule all_gather(const PlanRequest& request) {
  const int rank = request.rank;
  const int ranks = request.ranks;
  ScheduleBuilder plan(request, ranks);
  const Verbs lane = plan.lane();
  lane.copy(rank);
  int widest = 1;
  for (int held = 1; held < ranks; held *= 2) {
    const int count = std::min(held, ranks - held);
    const int source = wrap(rank + held, ranks);
    for (const Slice& slice : blocks_around(rank, count, ranks))
      lane.send_output(slice, {wrap(rank - held, ranks)});
    for (const Slice& slice : blocks_around(source, count, ranks)) lane.receive(source, slice);
    widest = std::max(widest, count);
  }
  return std::move(plan).finish(widest);
}

/// A block travels from its source to its destination in hops, which are the powers of two in its
/// distance. All blocks that hop in a round leave as one message, packed in scratch. The blocks
/// that arrive in their place have the same distances to go.
Schedule all_to_all(const PlanRequest& request) {
  const int rank = request.rank;
  const int ranks = request.ranks;
  const auto block = [ranks](int source, int distance) {
    return pair_chunk(wrap(source, ranks), wrap(source + distance, ranks), ranks);
  };
  ScheduleBuilder plan(request, block_count(request.what, ranks));
  const Verbs lane = plan.lane();
  // Indexed by distance: where this rank holds the block that travels this far.
  std::vector<Operand> held;
  for (int distance = 0; distance < ranks; ++distance) held.push_back(input(block(rank, distance)));
  int packed = 0;
  int widest = 1;
  for (int hop = 1; hop < ranks; hop *= 2) {
    const int first = packed;
    for (int distance = hop; distance < ranks; distance = (distance + 1) | hop) {
      lane.step({held[distance]}, {scratch(packed)}, block(rank - distance % hop, distance));
      held[distance] = scratch(packed++);
    }
    const Slice all{kAnyChunk, packed - first};
    assert(all.count > 0 && "some block hops in every round");
    lane.step({scratch(first)}, {peer(wrap(rank + hop, ranks))}, all);
    lane.step({peer(wrap(rank - hop, ranks))}, {scratch(first)}, all);
    widest = std::max(widest, all.count);
  }
  for (int distance = 0; distance < ranks; ++distance) {
    const int arrived = block(rank - distance, distance);
    lane.step({held[distance]}, {output(arrived)}, arrived);
  }
  plan.scratch_chunks(packed);
  return std::move(plan).finish(widest);
}

}  // namespace

Algorithm bruck_algorithm() {
  return {"bruck", {{Collective::all_gather, all_gather}, {Collective::all_to_all, all_to_all}}};
}

}  // namespace tutti
