// bruck: before each round a rank holds the blocks of as many ranks from itself on as the rounds
// before have doubled to, and sends them all backwards. ceil(log2(ranks)) rounds for any number of
// ranks: for small blocks. (Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for
// all-to-all communications. IEEE TPDS 8, 1997.) Blocks go straight to their places, so there is
// nothing to turn around at the end; a run that wraps around is two messages.
#include <algorithm>
#include <cassert>

#include "collectives/rank_arithmetic.h"
#include "collectives/verbs.h"

namespace tutti {
namespace {

using namespace collectives;

/// The blocks of `count` ranks from `first` on.
std::vector<Slice> run_of_blocks(int first, int count, int ranks) {
  const int before_wrap = std::min(count, ranks - first);
  std::vector<Slice> run{{first, before_wrap}};
  if (count > before_wrap) run.push_back({0, count - before_wrap});
  return run;
}

bool knows(Collective what, int ranks) { return ranks >= 1 && what == Collective::all_gather; }

Schedule plan(const PlanRequest& request) {
  const int rank = request.rank;
  const int ranks = request.ranks;
  assert(knows(request.what, ranks));
  if (ranks == 1) return plan_alone(request);
  ScheduleBuilder plan(request, ranks);
  const Verbs lane = plan.lane();
  lane.copy(rank);
  int widest = 1;
  for (int held = 1; held < ranks; held *= 2) {
    const int count = std::min(held, ranks - held);
    const int source = wrap(rank + held, ranks);
    for (const Slice& slice : run_of_blocks(rank, count, ranks))
      lane.send_output(slice, {wrap(rank - held, ranks)});
    for (const Slice& slice : run_of_blocks(source, count, ranks)) lane.receive(source, slice);
    widest = std::max(widest, count);
  }
  return std::move(plan).finish(widest);
}

}  // namespace

Algorithm bruck_algorithm() { return {"bruck", knows, plan}; }

}  // namespace tutti
