// recursive_doubling: in each round a rank exchanges data with a rank that is twice as far away as
// in the round before. This takes log2(ranks) sequential messages, which suits small messages and
// many ranks. If the number of ranks is not a power of two, there is one more round before and one
// after (Pairing).

#include <cassert>

#include "collectives/algorithms/algorithms.h"
#include "collectives/schedule/rank_arithmetic.h"

namespace tutti {
namespace {

using namespace collectives;

Slice slice_of(const RankRange& range) { return {range.first, range.count}; }

/// Returns the message from `from` and the operand `held` of this rank, with that of the lower rank
/// first, so that both ends of an exchange compute the same bits.
std::vector<Operand> lower_first(int from, int rank, Operand held) {
  assert(from != rank);
  if (from < rank) return {peer(from), held};
  return {held, peer(from)};
}

Schedule all_reduce(const PlanRequest& request) {
  const Pairing pairing{request.ranks};
  const int rank = request.rank;
  ScheduleBuilder plan(request, 1);
  const Verbs lane = plan.lane();
  if (pairing.passive(rank)) {
    lane.send(0, {rank + 1});
    lane.receive(rank + 1, 0);
    return std::move(plan).finish();
  }

  Operand held = input(0);
  if (pairing.speaks_for_two(rank)) {
    lane.receive_reduce_copy_send(rank - 1, 0, {pairing.partner(rank, 0)});
    held = output(0);
  } else {
    lane.send(0, {pairing.partner(rank, 0)});
  }
  for (int round = 0; round < pairing.rounds(); ++round) {
    const int partner = pairing.partner(rank, round);
    const bool last = round + 1 == pairing.rounds();
    Peers next;
    if (!last)
      next = {pairing.partner(rank, round + 1)};
    else if (pairing.speaks_for_two(rank))
      next = {rank - 1};
    const auto step = lane.reduce_copy_send(lower_first(partner, rank, held), 0, next);
    if (last) step.completes();
    held = output(0);
  }
  return std::move(plan).finish();
}

Schedule all_gather(const PlanRequest& request) {
  const Pairing pairing{request.ranks};
  const int rank = request.rank;
  const int ranks = request.ranks;
  // Half of all blocks; or, for passive rank 0, all blocks but its own.
  const int widest = pairing.extra() == 0 ? ranks / 2 : ranks - 1;
  ScheduleBuilder plan(request, ranks);
  const Verbs lane = plan.lane();
  if (pairing.passive(rank)) {
    lane.copy_send(rank, {rank + 1});
    if (rank > 0) lane.receive(rank + 1, {0, rank});
    lane.receive(rank + 1, {rank + 1, ranks - rank - 1});
    return std::move(plan).finish(widest);
  }

  lane.copy(rank);
  if (pairing.speaks_for_two(rank)) lane.receive(rank - 1, rank - 1);
  for (int round = 0; round < pairing.rounds(); ++round) {
    const int partner = pairing.partner(rank, round);
    lane.send_output(slice_of(doubling_range(pairing, rank, round)), {partner});
    lane.receive(partner, slice_of(doubling_range(pairing, partner, round)));
  }
  if (pairing.speaks_for_two(rank)) {
    if (rank > 1) lane.send_output({0, rank - 1}, {rank - 1});
    lane.send_output({rank, ranks - rank}, {rank - 1});
  }
  return std::move(plan).finish(widest);
}

/// The steps of all_gather in reverse order (recursive halving). Partial results are kept in
/// scratch, chunk by chunk.
Schedule reduce_scatter(const PlanRequest& request) {
  const Pairing pairing{request.ranks};
  const int rank = request.rank;
  const Slice all{0, request.ranks};
  const int widest = pairing.extra() == 0 ? request.ranks / 2 : request.ranks;
  ScheduleBuilder plan(request, request.ranks);
  const Verbs lane = plan.lane();
  if (pairing.passive(rank)) {
    lane.send(all, {rank + 1});
    lane.receive(rank + 1, rank);
    return std::move(plan).finish(widest);
  }

  plan.scratch_chunks(request.ranks);
  const bool for_two = pairing.speaks_for_two(rank);
  Place held = Place::input;
  if (for_two) {
    lane.step({peer(rank - 1), input(0)}, {scratch(0)}, all);
    held = Place::scratch;
  }
  for (int round = pairing.rounds() - 1; round >= 0; --round) {
    const int partner = pairing.partner(rank, round);
    const Slice theirs = slice_of(doubling_range(pairing, partner, round));
    const Slice ours = slice_of(doubling_range(pairing, rank, round));
    lane.step({{held, theirs.chunk}}, {peer(partner)}, theirs);
    const auto both = lower_first(partner, rank, {held, ours.chunk});
    if (round > 0 || for_two)
      lane.step(both, {scratch(ours.chunk)}, ours);
    else
      lane.reduce_copy(both, rank).completes();
    held = Place::scratch;
  }
  if (for_two) {
    lane.step({scratch(rank)}, {output(rank)}, rank).completes();
    lane.step({scratch(rank - 1)}, {peer(rank - 1)}, rank - 1).completes();
  }
  return std::move(plan).finish(widest);
}

/// Dissemination, which works for any number of ranks: before the round of distance d, a rank knows
/// that the d ranks up to and including itself have arrived.
Schedule barrier(const PlanRequest& request) {
  ScheduleBuilder plan(request, 1);
  const Verbs lane = plan.lane();
  lane.copy_send(0, {wrap(request.rank + 1, request.ranks)});
  for (int distance = 1; distance < request.ranks; distance *= 2) {
    Peers next;
    if (2 * distance < request.ranks) next = {wrap(request.rank + 2 * distance, request.ranks)};
    const int from = wrap(request.rank - distance, request.ranks);
    lane.reduce_copy_send({peer(from), output(0)}, 0, next);
  }
  return std::move(plan).finish();
}

}  // namespace

Algorithm recursive_doubling_algorithm() {
  return {.name = "recursive_doubling",
          .plans = {{Collective::all_reduce, all_reduce},
                    {Collective::all_gather, all_gather},
                    {Collective::reduce_scatter, reduce_scatter},
                    {Collective::barrier, barrier}},
          .rewrites_output = true,
          .numbering = Numbering::near};
}

}  // namespace tutti
