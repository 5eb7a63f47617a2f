// pairwise: in each round the ranks form pairs that exchange blocks; after `ranks` rounds every
// rank has met every other one. No rank receives from two peers at once, which suits exchanges that
// use the whole capacity of the machine.
#include <cassert>

#include "collectives/algorithms/algorithms.h"
#include "collectives/schedule/rank_arithmetic.h"
#include "collectives/schedule/semantics.h"

namespace tutti {
namespace {

using namespace collectives;

Schedule all_to_all(const PlanRequest& request) {
  const int rank = request.rank;
  const int ranks = request.ranks;
  ScheduleBuilder plan(request, block_count(request.what, ranks));
  const Verbs sends = plan.lane();
  const Verbs receives = plan.lane();
  for (int round = 0; round < ranks; ++round) {
    const int partner = swap_partner(rank, round, ranks);
    assert(swap_partner(partner, round, ranks) == rank);
    if (partner == rank) {
      sends.copy(pair_chunk(rank, rank, ranks));
      continue;
    }
    const StepHandle sent = sends.send(pair_chunk(rank, partner, ranks), {partner});
    // In place, the block from a rank is written where the block for that rank was.
    receives.receive(partner, pair_chunk(partner, rank, ranks)).after(sent);
  }
  return std::move(plan).finish();
}

}  // namespace

Algorithm pairwise_algorithm() {
  return {"pairwise", {{Collective::all_to_all, all_to_all}}, true};
}

}  // namespace tutti
