// hierarchical: ranks in groups (the ranks of a host, of a socket), of any sizes. Inside the groups
// all ranks share the work; between the groups each value goes once. Chunk or block c belongs to
// column c: the members of that number of all groups; in a group that is smaller, who stands in for
// it by turns. (Composed as in Cho, Finkler, Serrano, Kung, Hunter: BlueConnect, MLSys 2019; rooted
// collectives as in Karonis et al.: Exploiting hierarchy in parallel computer networks, IPDPS
// 2000.)
#include <algorithm>
#include <cassert>
#include <cmath>

#include "collectives/rank_arithmetic.h"
#include "collectives/trees.h"

namespace tutti {
namespace {

using namespace collectives;

/// The groups of a request, each with its ranks in order.
class Grouping {
 public:
  explicit Grouping(const PlanRequest& request)
      : rank_(request.rank), groups_(grouped_ranks(request)) {
    for (const auto& group : groups_) {
      columns_ = std::max(columns_, static_cast<int>(group.size()));
      if (std::find(group.begin(), group.end(), rank_) != group.end()) own_ = &group;
    }
  }

  int columns() const { return columns_; }
  Group local() const { return {*own_, rank_}; }

  /// Whether this rank works for `column`.
  bool in(int column) const { return holder(*own_, column) == rank_; }
  /// The ranks that work for `column`, one a group.
  Group column(int column) const {
    std::vector<int> ranks;
    for (const auto& group : groups_) ranks.push_back(holder(group, column));
    return {ranks, rank_};
  }

  /// By member of this rank's group: the columns for which it works.
  Shares local_columns() const {
    Shares shares(own_->size());
    for (int column = 0; column < columns_; ++column)
      shares[column % own_->size()].push_back(column);
    return shares;
  }
  /// By member of this rank's group: the ranks of all columns for which it works.
  Shares local_blocks() const {
    Shares shares(own_->size());
    for (int column = 0; column < columns_; ++column)
      for (const auto& block : column_blocks(column))
        shares[column % own_->size()].insert(shares[column % own_->size()].end(), block.begin(),
                                             block.end());
    return shares;
  }
  /// By member of a column: the rank of that number in its group, if there is one.
  Shares column_blocks(int column) const {
    Shares shares;
    for (const auto& group : groups_) {
      auto& share = shares.emplace_back();
      if (column < static_cast<int>(group.size())) share.push_back(group[column]);
    }
    return shares;
  }

  /// Of each group one, in the order of groups behind the root's; the root for its own.
  std::vector<int> leaders(int root) const {
    std::vector<int> all;
    for (const auto& group : groups_)
      if (std::find(group.begin(), group.end(), root) != group.end())
        all.insert(all.begin(), root);
      else
        all.push_back(group.front());
    return all;
  }

 private:
  static std::vector<std::vector<int>> grouped_ranks(const PlanRequest& request);

  static int holder(const std::vector<int>& group, int column) {
    return group[column % group.size()];
  }

  int rank_;
  std::vector<std::vector<int>> groups_;
  const std::vector<int>* own_ = nullptr;
  int columns_ = 0;
};

std::vector<std::vector<int>> Grouping::grouped_ranks(const PlanRequest& request) {
  // Where nothing is known: about as many groups as ranks in one.
  const int usual = static_cast<int>(std::ceil(std::sqrt(request.ranks)));
  assert(request.groups.empty() || static_cast<int>(request.groups.size()) == request.ranks);
  std::vector<std::vector<int>> groups;
  std::vector<int> numbers;  // by group
  for (int rank = 0; rank < request.ranks; ++rank) {
    const int number = request.groups.empty() ? rank / usual : request.groups[rank];
    const auto found = std::find(numbers.begin(), numbers.end(), number);
    if (found == numbers.end()) {
      numbers.push_back(number);
      groups.push_back({rank});
    } else {
      groups[found - numbers.begin()].push_back(rank);
    }
  }
  return groups;
}

Schedule all_reduce(const PlanRequest& request) {
  const Grouping ranks(request);
  ScheduleBuilder plan(request, ranks.columns());
  const Verbs reduce = plan.lane(0, 0);
  ring_reduce_scatter(reduce, ranks.local(), ranks.local_columns(),
                      {Place::input, Place::output, false});

  std::vector<ChunkTree> trees;
  for (int column = 0; column < ranks.columns(); ++column)
    if (ranks.in(column)) trees.push_back({column, knomial_tree(ranks.column(column), 2)});
  const auto [up, last] = tree_all_reduce(plan, 0, trees, Place::output);
  up.starts_after(reduce);

  const Verbs gather = plan.lane(1, 1);
  ring_all_gather(gather, ranks.local(), ranks.local_columns());
  gather.starts_after(last);
  return std::move(plan).finish();
}

/// Between the groups first: inside, a rank then hands on what its whole column has brought.
Schedule all_gather(const PlanRequest& request) {
  const Grouping ranks(request);
  ScheduleBuilder plan(request, request.ranks);
  const Verbs between = plan.lane(0, 0);
  between.copy(request.rank);
  for (int column = 0; column < ranks.columns(); ++column)
    if (ranks.in(column))
      ring_all_gather(between, ranks.column(column), ranks.column_blocks(column));
  const Verbs inside = plan.lane(1, 1);
  ring_all_gather(inside, ranks.local(), ranks.local_blocks());
  inside.starts_after(between);
  return std::move(plan).finish();
}

/// all_gather backwards. One lane, since the sums of the groups wait in scratch, which serves all
/// pieces.
Schedule reduce_scatter(const PlanRequest& request) {
  const Grouping ranks(request);
  ScheduleBuilder plan(request, request.ranks);
  plan.scratch_chunks(request.ranks);
  const Verbs lane = plan.lane();
  ring_reduce_scatter(lane, ranks.local(), ranks.local_blocks(),
                      {Place::input, Place::scratch, false});
  for (int column = 0; column < ranks.columns(); ++column)
    if (ranks.in(column))
      ring_reduce_scatter(lane, ranks.column(column), ranks.column_blocks(column),
                          {Place::scratch, Place::output, true});
  return std::move(plan).finish();
}

/// Between the groups a tree of leaders, inside each a tree below its leader.
Schedule rooted(const PlanRequest& request) {
  const Grouping ranks(request);
  const Group local = ranks.local();
  const std::vector<int> leaders = ranks.leaders(request.root);
  const auto leads = [&](int rank) {
    return std::find(leaders.begin(), leaders.end(), rank) != leaders.end();
  };
  std::vector<int> below;  // the group, its leader first
  for (int i = 0; i < local.size(); ++i)
    below.insert(leads(local.at(i)) ? below.begin() : below.end(), local.at(i));

  Tree tree = knomial_tree({below, request.rank}, 2);
  if (leads(request.rank)) {
    const Tree above = knomial_tree({leaders, request.rank}, 2);
    tree.parent = above.parent;
    tree.children.insert(tree.children.begin(), above.children.begin(), above.children.end());
  }
  return plan_trees(request, {tree});
}

bool knows(Collective what, int ranks) {
  return ranks >= 1 && (trees_know(what, ranks) || what == Collective::all_gather ||
                        what == Collective::reduce_scatter);
}

Schedule plan(const PlanRequest& request) {
  assert(knows(request.what, request.ranks));
  if (request.ranks == 1) return plan_alone(request);
  switch (request.what) {
    case Collective::all_reduce: return all_reduce(request);
    case Collective::all_gather: return all_gather(request);
    case Collective::reduce_scatter: return reduce_scatter(request);
    default: return rooted(request);
  }
}

}  // namespace

Algorithm hierarchical_algorithm() { return {"hierarchical", knows, plan}; }

}  // namespace tutti
