// hierarchical: the ranks form groups of any sizes (the ranks of a host, of a socket). Within a
// group all ranks share the work; between groups each value is sent once. (Composed as in Cho,
// Finkler, Serrano, Kung, Hunter: BlueConnect, MLSys 2019; rooted collectives as in Karonis et al.:
// Exploiting hierarchy in parallel computer networks, IPDPS 2000.)
#include <algorithm>
#include <cassert>

#include "collectives/algorithms/grouping.h"
#include "collectives/algorithms/trees.h"

namespace tutti {
namespace {

using namespace collectives;

Schedule all_reduce(const PlanRequest& request) {
  const Grouping ranks(request);
  ScheduleBuilder plan(request, ranks.columns());
  const Verbs reduce = plan.lane(0, 0);
  ring_reduce_scatter(reduce, ranks.local(), ranks.local_columns(),
                      {Place::input, Place::output, false});

  std::vector<ChunkTree> trees;
  for (const int column : ranks.own_columns())
    trees.push_back({column, knomial_tree(ranks.column(column), 2)});
  const auto [up, last] = tree_all_reduce(plan, 0, trees, Place::output);
  up.starts_after(reduce);

  const Verbs gather = plan.lane(1, 1);
  ring_all_gather(gather, ranks.local(), ranks.local_columns());
  gather.starts_after(last);
  return std::move(plan).finish();
}

/// The first stage is between the groups. Within its group a rank then passes on the blocks that
/// its whole column has received.
Schedule all_gather(const PlanRequest& request) {
  const Grouping ranks(request);
  ScheduleBuilder plan(request, request.ranks);
  const Verbs between = plan.lane(0, 0);
  between.copy(request.rank);
  for (const int column : ranks.own_columns())
    ring_all_gather(between, ranks.column(column), ranks.column_blocks(column));
  const Verbs inside = plan.lane(1, 1);
  ring_all_gather(inside, ranks.local(), ranks.local_blocks());
  inside.starts_after(between);
  return std::move(plan).finish();
}

/// The stages of all_gather in reverse order. There is one lane, because the sums of the groups are
/// kept in scratch, which all pieces share.
Schedule reduce_scatter(const PlanRequest& request) {
  const Grouping ranks(request);
  ScheduleBuilder plan(request, request.ranks);
  plan.scratch_chunks(request.ranks);
  const Verbs lane = plan.lane();
  ring_reduce_scatter(lane, ranks.local(), ranks.local_blocks(),
                      {Place::input, Place::scratch, false});
  for (const int column : ranks.own_columns())
    ring_reduce_scatter(lane, ranks.column(column), ranks.column_blocks(column),
                        {Place::scratch, Place::output, true});
  return std::move(plan).finish();
}

/// A tree connects the leaders of the groups, and within each group a tree begins at its leader.
Schedule rooted(const PlanRequest& request) {
  const Grouping ranks(request);
  const Group local = ranks.local();
  const std::vector<int> leaders = ranks.leaders(request.root);
  const auto leads = [&](int rank) {
    return std::find(leaders.begin(), leaders.end(), rank) != leaders.end();
  };
  std::vector<int> below;  // the ranks of the group, its leader first
  for (int i = 0; i < local.size(); ++i)
    below.insert(leads(local.at(i)) ? below.begin() : below.end(), local.at(i));
  assert(static_cast<int>(below.size()) == local.size() && leads(below.front()));

  Tree tree = knomial_tree({below, request.rank}, 2);
  if (leads(request.rank)) {
    const Tree above = knomial_tree({leaders, request.rank}, 2);
    tree.parent = above.parent;
    tree.children.insert(tree.children.begin(), above.children.begin(), above.children.end());
  }
  return plan_trees(request, {tree});
}

}  // namespace

Algorithm hierarchical_algorithm() {
  return {.name = "hierarchical",
          .plans = {{Collective::all_reduce, all_reduce},
                    {Collective::all_gather, all_gather},
                    {Collective::reduce_scatter, reduce_scatter},
                    {Collective::reduce, rooted},
                    {Collective::broadcast, rooted},
                    {Collective::barrier, rooted}},
          .rewrites_output = true,
          .grouped = true};
}

}  // namespace tutti
