#include "collectives/synthesis/synthesize.h"

#include <fmt/format.h>

#include <cassert>
#include <numeric>
#include <utility>

#include <tutti/error.hpp>

#include "collectives/algorithms/trees.h"
#include "collectives/schedule/semantics.h"

namespace tutti {
namespace {

using collectives::Tree;

/// Returns what one rank has to do with a tree: its parent, if it is not the root, and its
/// children.
Tree seen_by(const SpanningTree& tree, int rank) {
  Tree seen;
  for (const auto& edge : tree.edges) {
    if (edge.to == rank) seen.parent = edge.from;
    if (edge.from == rank) seen.children.push_back(edge.to);
  }
  return seen;
}

/// Returns one rank's part of a collective whose blocks lie where the call says: the block of each
/// root goes down its tree, or is added up towards it.
Schedule plan_blocks(const PlanRequest& request, std::span<const SpanningTree> trees) {
  ScheduleBuilder plan(request, request.ranks);
  for (int channel = 0; const SpanningTree& tree : trees) {
    const Tree seen = seen_by(tree, request.rank);
    const Verbs lane = plan.lane(channel, channel);
    ++channel;
    if (request.what == Collective::all_gather) {
      if (seen.parent)
        lane.receive_send(*seen.parent, tree.root, seen.children);
      else
        lane.copy_send(tree.root, seen.children);
      continue;
    }
    std::vector<Operand> operands{input(tree.root)};
    for (const int child : seen.children) operands.push_back(peer(child));
    if (seen.parent)
      lane.reduce_send(std::move(operands), tree.root, {*seen.parent});
    else
      lane.reduce_copy(std::move(operands), tree.root).completes();
  }
  return std::move(plan).finish();
}

void prove(const std::vector<Schedule>& schedules) {
  for (const bool in_place : {false, true}) {
    VerifyOptions options;
    options.in_place = in_place;
    const Verdict verdict = verify(schedules, options);
    if (verdict.ok) continue;
    throw Error(verdict.too_large ? ErrorKind::unavailable : ErrorKind::internal,
                fmt::format("the schedules that were synthesized are {}{}: {}",
                            verdict.too_large ? "not proved" : "wrong", in_place ? " in place" : "",
                            verdict.why));
  }
}

/// Returns the trees for an all_reduce: every rank adds up a part, or one of them all.
Forest all_reduce_forest(const Paths& paths, int most_trees, StepBudget& budget) {
  std::vector<int> roots(static_cast<std::size_t>(paths.gpus()));
  std::iota(roots.begin(), roots.end(), 0);
  Forest best = pack_forest(paths, roots, most_trees, TreeUse::both, budget);
  double rate = best.gb_per_s * static_cast<double>(roots.size());
  for (const int root : roots) {
    try {
      Forest one = pack_forest(paths, {root}, most_trees, TreeUse::both, budget);
      if (one.gb_per_s <= rate * 1.001) continue;
      rate = one.gb_per_s;
      best = std::move(one);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unavailable) throw;
      break;  // the steps are spent
    }
  }
  return best;
}

}  // namespace

bool can_synthesize(Collective what) {
  return what == Collective::all_gather || what == Collective::reduce_scatter ||
         what == Collective::all_reduce || what == Collective::broadcast ||
         what == Collective::reduce;
}

std::vector<Schedule> schedules_of(std::span<const SpanningTree> trees, Collective what,
                                   int ranks) {
  assert(!trees.empty() && can_synthesize(what));
  const bool blocks = collectives::layout_of(what) == Layout::blocks;
  assert(!blocks || static_cast<int>(trees.size()) == ranks);
  const int root = collectives::has_root(what) ? trees[0].root : 0;
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < ranks; ++rank) {
    const PlanRequest request{what, rank, ranks, root};
    if (blocks) {
      schedules.push_back(plan_blocks(request, trees));
      continue;
    }
    std::vector<Tree> seen;
    for (const SpanningTree& tree : trees) seen.push_back(seen_by(tree, rank));
    schedules.push_back(collectives::plan_trees(request, seen));
  }
  return schedules;
}

Synthesis synthesize(const Paths& paths, const SynthesisRequest& request, StepBudget& budget) {
  if (!can_synthesize(request.what))
    throw Error(ErrorKind::usage,
                fmt::format("{} cannot be synthesized; all_gather, reduce_scatter, all_reduce, "
                            "broadcast and reduce can",
                            to_string(request.what)));
  const bool has_root = collectives::has_root(request.what);
  if (paths.gpus() < 2)
    throw Error(ErrorKind::unavailable, "schedules need a topology of at least two GPUs");
  if (has_root && (request.root < 0 || request.root >= paths.gpus()))
    throw Error(ErrorKind::usage, fmt::format("the root {} is no GPU of the topology's {}",
                                              request.root, paths.gpus()));
  std::vector<int> roots(has_root ? 1 : static_cast<std::size_t>(paths.gpus()));
  std::iota(roots.begin(), roots.end(), has_root ? request.root : 0);
  const bool blocks = collectives::layout_of(request.what) == Layout::blocks;
  Synthesis synthesis;
  synthesis.forest =
      request.what == Collective::all_reduce
          ? all_reduce_forest(paths, request.most_trees, budget)
          : pack_forest(paths, roots, blocks ? 1 : request.most_trees,
                        collectives::reduces(request.what) ? TreeUse::up : TreeUse::down, budget);
  synthesis.schedules = schedules_of(synthesis.forest.trees, request.what, paths.gpus());
  prove(synthesis.schedules);
  return synthesis;
}

}  // namespace tutti
