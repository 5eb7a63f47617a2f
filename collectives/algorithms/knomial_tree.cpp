// binomial_tree: values go up a tree to the root and results come down, in log2(ranks) messages
// each. With a lane for each direction, pieces go up while earlier ones come down. This suits small
// messages and many ranks.
//
// knomial_tree: a k-nomial tree with radix 4. Compared with a binomial tree, it has half as many
// levels, and a node has up to three children in each, which it serves in one step. This suits
// small messages where the latency of a message costs more than the work of a node.
//
// gather and scatter: an inner node collects the blocks of its subtree in scratch memory, or
// distributes them from there.
#include <algorithm>
#include <cassert>

#include "collectives/algorithms/trees.h"
#include "collectives/schedule/rank_arithmetic.h"

namespace tutti {
namespace {

using namespace collectives;

class BlockTree {
 public:
  BlockTree(const PlanRequest& request, int radix)
      : request_(request), group_(Group::all(request, request.root)), radix_(radix) {
    assert(radix >= 2 && request.ranks >= 2);
  }

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

  /// Returns the blocks of a member's subtree.
  std::vector<Slice> blocks(int member) const {
    assert(0 <= member && member < request_.ranks);
    return blocks_around(group_.at(member), knomial_size(member, radix_, request_.ranks),
                         request_.ranks);
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

template <int kRadix>
Schedule one_tree(const PlanRequest& request) {
  return plan_trees(request, {knomial_tree(Group::all(request, request.root), kRadix)});
}

template <int kRadix>
std::vector<Algorithm::Plan> knomial_plans() {
  return {{Collective::all_reduce, one_tree<kRadix>},
          {Collective::reduce, one_tree<kRadix>},
          {Collective::broadcast, one_tree<kRadix>},
          {Collective::barrier, one_tree<kRadix>},
          {Collective::gather,
           [](const PlanRequest& asked) { return BlockTree(asked, kRadix).gather(); }},
          {Collective::scatter,
           [](const PlanRequest& asked) { return BlockTree(asked, kRadix).scatter(); }}};
}

}  // namespace

Algorithm binomial_tree_algorithm() {
  return {.name = "binomial_tree", .plans = knomial_plans<2>(), .numbering = Numbering::near};
}
Algorithm knomial_tree_algorithm() {
  return {.name = "knomial_tree", .plans = knomial_plans<4>(), .numbering = Numbering::near};
}

}  // namespace tutti
