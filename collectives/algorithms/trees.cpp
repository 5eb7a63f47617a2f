#include "collectives/algorithms/trees.h"

#include <cassert>
#include <utility>

#include "collectives/schedule/rank_arithmetic.h"
#include "collectives/schedule/semantics.h"

namespace tutti::collectives {
namespace {

/// Returns the operands of a reduction over this rank's values and its subtrees', in this order.
std::vector<Operand> subtree(const Tree& tree, Operand own) {
  std::vector<Operand> operands{own};
  for (const int child : tree.children) operands.push_back(peer(child));
  return operands;
}

void complete(const StepHandle& step, Collective what) {
  if (reduces(what)) step.completes();
}

void reduce(const Verbs& lane, const ChunkTree& part) {
  const auto& [chunk, tree] = part;
  if (tree.parent)
    lane.reduce_send(subtree(tree, input(chunk)), chunk, {*tree.parent});
  else
    lane.reduce_copy(subtree(tree, input(chunk)), chunk).completes();
}

void broadcast(const Verbs& lane, const ChunkTree& part) {
  const auto& [chunk, tree] = part;
  if (tree.parent)
    lane.receive_send(*tree.parent, chunk, tree.children);
  else
    lane.copy_send(chunk, tree.children);
}

}  // namespace

Tree knomial_tree(const Group& group, int radix) {
  assert(radix >= 2);
  Tree tree;
  if (group.index() > 0) tree.parent = group.at(knomial_parent(group.index(), radix));
  for (const int child : knomial_children(group.index(), radix, group.size()))
    tree.children.push_back(group.at(child));
  return tree;
}

UpAndDown tree_all_reduce(ScheduleBuilder& plan, int channel, std::span<const ChunkTree> trees,
                          Place from) {
  assert(!trees.empty() && channel >= 0);
  const bool is_root = !trees[0].tree.parent;
  const Verbs up = plan.lane(channel, channel);
  if (is_root) {
    for (const auto& [chunk, tree] : trees) {
      assert(!tree.parent);
      complete(up.reduce_copy_send(subtree(tree, {from, chunk}), chunk, tree.children),
               plan.what());
    }
    return {up, up};
  }
  const Verbs down = plan.lane(channel, channel);
  for (const auto& [chunk, tree] : trees) {
    const auto sent = up.reduce_send(subtree(tree, {from, chunk}), chunk, {tree.parent.value()});
    // In place, the result overwrites input that must have been sent before.
    down.receive_send(*tree.parent, chunk, tree.children).after(sent);
  }
  return {up, down};
}

Schedule plan_trees(const PlanRequest& request, const std::vector<Tree>& trees) {
  assert(!trees.empty());
  ScheduleBuilder plan(request, static_cast<int>(trees.size()));
  for (int number = 0; const Tree& tree : trees) {
    const ChunkTree part{number, tree};
    switch (request.what) {
      case Collective::reduce: reduce(plan.lane(number, number), part); break;
      case Collective::broadcast: broadcast(plan.lane(number, number), part); break;
      default: tree_all_reduce(plan, number, {&part, 1}, Place::input);
    }
    ++number;
  }
  return std::move(plan).finish();
}

}  // namespace tutti::collectives
