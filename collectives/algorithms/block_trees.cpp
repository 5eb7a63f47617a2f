// gather and scatter over a k-nomial tree. An inner node collects the blocks of its subtree in
// scratch memory, or distributes them from there.
#include <algorithm>
#include <cassert>

#include "collectives/algorithms/trees.h"
#include "collectives/schedule/rank_arithmetic.h"

namespace tutti::collectives {
namespace {

class BlockTree {
 public:
  BlockTree(const PlanRequest& request, int radix)
      : request_(request), group_(Group::all(request, request.root)), radix_(radix) {}

  Schedule gather() const {
    ScheduleBuilder plan(request_, request_.ranks);
    const Verbs lane = plan.lane();
    if (is_leaf()) {
      lane.send(request_.rank, {parent()});
      return std::move(plan).finish(widest());
    }
    if (!is_root()) plan.scratch_chunks(request_.ranks);
    const Place held = is_root() ? Place::output : Place::scratch;
    lane.step({input(request_.rank)}, {{held, request_.rank}}, request_.rank);
    for (const int child : children())
      for (const Slice& run : blocks(child))
        lane.step({peer(group_.at(child))}, {{held, run.chunk}}, run);
    if (!is_root())
      for (const Slice& run : blocks(group_.index()))
        lane.step({scratch(run.chunk)}, {peer(parent())}, run);
    return std::move(plan).finish(widest());
  }

  /// The steps of gather in reverse order: the last child, which has the most blocks to pass on,
  /// comes first.
  Schedule scatter() const {
    ScheduleBuilder plan(request_, request_.ranks);
    const Verbs lane = plan.lane();
    if (is_leaf()) {
      lane.receive(parent(), request_.rank);
      return std::move(plan).finish(widest());
    }
    const Place held = is_root() ? Place::input : Place::scratch;
    if (!is_root()) {
      plan.scratch_chunks(request_.ranks);
      for (const Slice& run : blocks(group_.index()))
        lane.step({peer(parent())}, {scratch(run.chunk)}, run);
    }
    std::vector<int> last_first = children();
    std::reverse(last_first.begin(), last_first.end());
    for (const int child : last_first)
      for (const Slice& run : blocks(child))
        lane.step({{held, run.chunk}}, {peer(group_.at(child))}, run);
    lane.step({{held, request_.rank}}, {output(request_.rank)}, request_.rank);
    return std::move(plan).finish(widest());
  }

 private:
  bool is_root() const { return group_.index() == 0; }
  bool is_leaf() const { return children().empty(); }
  int parent() const { return group_.at(knomial_parent(group_.index(), radix_)); }
  std::vector<int> children() const {
    return knomial_children(group_.index(), radix_, group_.size());
  }

  /// Returns the blocks of a member's subtree, as two runs if the subtree wraps around the last
  /// rank.
  std::vector<Slice> blocks(int member) const {
    const int size = knomial_size(member, radix_, request_.ranks);
    const int first = group_.at(member);
    const int before_the_end = std::min(size, request_.ranks - first);
    std::vector<Slice> runs{{first, before_the_end}};
    if (before_the_end < size) runs.emplace_back(0, size - before_the_end);
    return runs;
  }

  /// Returns the greatest number of blocks in a message of any member, which is the same on every
  /// rank.
  int widest() const {
    int most = 1;
    for (int member = 1; member < request_.ranks; ++member)
      for (const Slice& run : blocks(member)) most = std::max(most, run.count);
    return most;
  }

  const PlanRequest& request_;
  const Group group_;
  const int radix_;
};

}  // namespace

bool knomial_knows(Collective what, int ranks) {
  return trees_know(what, ranks) ||
         (ranks >= 1 && (what == Collective::gather || what == Collective::scatter));
}

Schedule plan_knomial(const PlanRequest& request, int radix) {
  assert(knomial_knows(request.what, request.ranks));
  if (request.ranks == 1) return plan_alone(request);
  if (request.what == Collective::gather) return BlockTree(request, radix).gather();
  if (request.what == Collective::scatter) return BlockTree(request, radix).scatter();
  return plan_trees(request, {knomial_tree(Group::all(request, request.root), radix)});
}

}  // namespace tutti::collectives
