// scatter_all_gather: the root scatters the buffer down a binomial tree, and the other ranks pass
// their shares around a ring. The root sends the buffer only once, which suits large buffers.
// (Barnett, Shuler, van de Geijn, Gupta, Payne, Watts: Interprocessor collective communication
// library. SHPCC 1994.)

#include <cassert>

#include "collectives/algorithms/stages.h"
#include "collectives/schedule/rank_arithmetic.h"

namespace tutti {
namespace {

using namespace collectives;

/// Chunk c is the share of member c + 1: the root, member 0, needs none.
int share_of(int member) {
  assert(member >= 1 && "the root owns no share");
  return member - 1;
}

/// Sends every chunk down from the root to its owner, this rank's own chunk first. A node on the
/// path passes a chunk on as it arrives.
void scatter(const Verbs& lane, const Group& group) {
  const int self = group.index();
  const int parent = group.at(knomial_parent(self, 2));
  const auto children = knomial_children(self, 2, group.size());
  if (self > 0) lane.receive(parent, share_of(self));
  for (const int child : children)
    for (int owner = child; owner < child + (child - self) && owner < group.size(); ++owner)
      if (self == 0)
        lane.copy_send(share_of(owner), {group.at(child)});
      else
        lane.step({peer(parent)}, {peer(group.at(child))}, share_of(owner));
}

Schedule broadcast(const PlanRequest& request) {
  const Group group = Group::all(request, request.root);
  ScheduleBuilder plan(request, request.ranks - 1);
  const Verbs down = plan.lane(0, 0);
  scatter(down, group);
  if (request.rank == request.root) return std::move(plan).finish();

  std::vector<int> others;
  Shares shares;
  for (int member = 1; member < group.size(); ++member) {
    others.push_back(group.at(member));
    shares.push_back({share_of(member)});
  }
  const Verbs around = plan.lane(1, 1);
  ring_all_gather(around, {others, request.rank}, shares);
  if (!around.empty()) around.first().after(down.first());
  return std::move(plan).finish();
}

}  // namespace

Algorithm scatter_all_gather_algorithm() {
  return {.name = "scatter_all_gather",
          .plans = {{Collective::broadcast, broadcast}},
          .numbering = Numbering::near};
}

}  // namespace tutti
