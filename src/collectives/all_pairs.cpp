// all_pairs: every rank owns a share of the buffer; shares go straight to their owners and straight
// back. Two messages' latency and no more bytes than a ring: for middle sizes.
#include <algorithm>

#include "collectives/rank_arithmetic.h"
#include "collectives/verbs.h"

namespace tutti {
namespace {

using namespace collectives;

/// A lane blocks on its first missing message, and costs the engine a look at each turn: enough
/// lanes that one late peer holds up few others.
constexpr int kReceiveLanes = 8;

/// Lanes that take turns in receiving from many peers.
class ReceiveLanes {
 public:
  ReceiveLanes(ScheduleBuilder& plan, int peers, int channel) {
    for (int lane = 0; lane < std::min(peers, kReceiveLanes); ++lane)
      lanes_.push_back(plan.lane(channel));
  }

  const Verbs& next() { return lanes_[turn_++ % lanes_.size()]; }

 private:
  std::vector<Verbs> lanes_;
  std::size_t turn_ = 0;
};

/// Chunk q is rank q's share. In place, a finished share overwrites input that must have been sent.
Schedule all_reduce(const PlanRequest& request) {
  const auto peers = others(request.rank, request.ranks);
  ScheduleBuilder plan(request, request.ranks);

  const Verbs spread = plan.lane(0, 0);
  std::vector<StepHandle> sent;
  for (const int owner : peers) sent.push_back(spread.send(owner, {owner}));

  std::vector<Operand> results{output(request.rank)};
  for (const int rank : peers) results.push_back(peer(rank));
  plan.lane(0, 1).step(in_rank_order(request, request.rank), results, request.rank).completes();

  ReceiveLanes gather(plan, request.ranks - 1, 1);
  for (std::size_t i = 0; i < peers.size(); ++i)
    gather.next().receive(peers[i], peers[i]).after(sent[i]);
  return std::move(plan).finish();
}

bool knows(Collective what, int ranks) { return what == Collective::all_reduce && ranks >= 1; }

Schedule plan(const PlanRequest& request) {
  if (request.ranks == 1) return plan_alone(request);
  return all_reduce(request);
}

}  // namespace

Algorithm all_pairs_algorithm() { return {"all_pairs", knows, plan}; }

}  // namespace tutti
