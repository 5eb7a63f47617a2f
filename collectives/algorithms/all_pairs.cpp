// all_pairs: every rank owns a share of the buffer. All shares are sent directly to their owners
// and the results directly back. This takes the latency of one or two messages and sends no more
// bytes than a ring, which suits middle sizes.
#include <algorithm>
#include <cassert>

#include "collectives/algorithms/algorithms.h"
#include "collectives/schedule/rank_arithmetic.h"
#include "collectives/schedule/semantics.h"

namespace tutti {
namespace {

using namespace collectives;

/// The number of lanes that receive. A lane waits for its first missing message, and each lane
/// costs the engine a look at each turn; with this many lanes a late peer delays few others.
constexpr int kReceiveLanes = 8;

/// Distributes the receives from many peers over several lanes, by turns.
class ReceiveLanes {
 public:
  ReceiveLanes(ScheduleBuilder& plan, int peers, int channel) {
    assert(peers >= 0 && channel >= 0);
    for (int lane = 0; lane < std::min(peers, kReceiveLanes); ++lane)
      lanes_.push_back(plan.lane(channel));
  }

  const Verbs& next() {
    assert(!lanes_.empty());
    return lanes_[turn_++ % lanes_.size()];
  }

 private:
  std::vector<Verbs> lanes_;
  std::size_t turn_ = 0;
};

/// Sends to each of `peers` its share of this rank's input, on channel 0, and returns the steps.
std::vector<StepHandle> spread_shares(ScheduleBuilder& plan, const Peers& peers) {
  assert(!peers.empty());
  const Verbs lane = plan.lane();
  std::vector<StepHandle> sent;
  for (const int owner : peers) sent.push_back(lane.send(owner, {owner}));
  return sent;
}

/// Receives the finished shares of `peers` on channel 1. In place they overwrite the input, which
/// therefore must have been sent before.
void gather_shares(ScheduleBuilder& plan, const Peers& peers, const std::vector<StepHandle>& sent) {
  assert(sent.size() == peers.size());
  ReceiveLanes lanes(plan, static_cast<int>(peers.size()), 1);
  for (std::size_t i = 0; i < peers.size(); ++i)
    lanes.next().receive(peers[i], peers[i]).after(sent[i]);
}

Schedule all_reduce(const PlanRequest& request) {
  const Peers peers = others(request.rank, request.ranks);
  ScheduleBuilder plan(request, request.ranks);
  const auto sent = spread_shares(plan, peers);
  plan.lane(0, 1)
      .reduce_copy_send(in_rank_order(request, request.rank), request.rank, peers)
      .completes();
  gather_shares(plan, peers, sent);
  return std::move(plan).finish();
}

/// Works like all_reduce, but finished shares are sent only to the root.
Schedule reduce(const PlanRequest& request) {
  const Peers peers = others(request.rank, request.ranks);
  ScheduleBuilder plan(request, request.ranks);
  const auto sent = spread_shares(plan, peers);
  const Verbs owner = plan.lane(0, 1);
  const auto everyones = in_rank_order(request, request.rank);
  if (request.rank == request.root) {
    owner.reduce_copy(everyones, request.rank).completes();
    gather_shares(plan, peers, sent);
  } else {
    owner.reduce_send(everyones, request.rank, {request.root}).completes();
  }
  return std::move(plan).finish();
}

Schedule reduce_scatter(const PlanRequest& request) {
  ScheduleBuilder plan(request, request.ranks);
  spread_shares(plan, others(request.rank, request.ranks));
  plan.lane().reduce_copy(in_rank_order(request, request.rank), request.rank).completes();
  return std::move(plan).finish();
}

Schedule all_gather(const PlanRequest& request) {
  const Peers peers = others(request.rank, request.ranks);
  ScheduleBuilder plan(request, request.ranks);
  plan.lane().copy_send(request.rank, peers);
  ReceiveLanes gather(plan, request.ranks - 1, 0);
  for (const int owner : peers) gather.next().receive(owner, owner);
  return std::move(plan).finish();
}

/// Sends every block directly from its source to its destination.
Schedule all_to_all(const PlanRequest& request) {
  const int rank = request.rank;
  const int ranks = request.ranks;
  const Peers peers = others(rank, ranks);
  ScheduleBuilder plan(request, block_count(request.what, ranks));
  const Verbs lane = plan.lane();
  lane.copy(pair_chunk(rank, rank, ranks));
  std::vector<StepHandle> sent;
  for (const int to : peers) sent.push_back(lane.send(pair_chunk(rank, to, ranks), {to}));
  // In place, the block from a rank is written where the block for that rank was.
  ReceiveLanes lanes(plan, ranks - 1, 0);
  for (std::size_t i = 0; i < peers.size(); ++i)
    lanes.next().receive(peers[i], pair_chunk(peers[i], rank, ranks)).after(sent[i]);
  return std::move(plan).finish();
}

/// The root scatters its buffer, and the other ranks exchange the parts. The root owns no share, so
/// that it sends the buffer only once. Chunk c belongs to the rank c + 1 behind the root.
Schedule broadcast(const PlanRequest& request) {
  const auto share_of = [&](int rank) {
    assert(rank != request.root && "the root owns no share");
    return relative_rank(rank, request.root, request.ranks) - 1;
  };
  const Peers peers = others(request.rank, request.ranks);
  ScheduleBuilder plan(request, request.ranks - 1);
  if (request.rank == request.root) {
    const Verbs scatter = plan.lane();
    for (const int owner : peers) scatter.copy_send(share_of(owner), {owner});
    return std::move(plan).finish();
  }
  Peers fellows = peers;
  std::erase(fellows, request.root);
  assert(fellows.size() + 1 == peers.size());
  plan.lane().receive_send(request.root, share_of(request.rank), fellows);
  ReceiveLanes gather(plan, request.ranks - 2, 0);
  for (const int owner : fellows) gather.next().receive(owner, share_of(owner));
  return std::move(plan).finish();
}

}  // namespace

Algorithm all_pairs_algorithm() {
  return {"all_pairs",
          {{Collective::all_reduce, all_reduce},
           {Collective::broadcast, broadcast},
           {Collective::reduce, reduce},
           {Collective::all_gather, all_gather},
           {Collective::reduce_scatter, reduce_scatter},
           {Collective::all_to_all, all_to_all}},
          true,
          false,
          true};
}

}  // namespace tutti
