#include "collectives/algorithms/grouping.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace tutti::collectives {
namespace {

bool contains(const std::vector<int>& group, int rank) {
  return std::find(group.begin(), group.end(), rank) != group.end();
}

int holder(const std::vector<int>& group, int column) { return group[column % group.size()]; }

/// Returns the number of each rank's group.
std::vector<int> numbers_of(const PlanRequest& request) {
  assert(request.groups.empty() || static_cast<int>(request.groups.size()) == request.ranks);
  if (!request.groups.empty()) return request.groups;
  // Nothing is known about groups, so there are about as many groups as ranks in a group.
  const int usual = static_cast<int>(std::ceil(std::sqrt(request.ranks)));
  std::vector<int> numbers;
  for (int rank = 0; rank < request.ranks; ++rank) numbers.push_back(rank / usual);
  return numbers;
}

}  // namespace

Grouping::Grouping(const PlanRequest& request) : rank_(request.rank) {
  const std::vector<int> numbers = numbers_of(request);
  std::vector<int> known;  // the number of each group in the request
  for (int rank = 0; rank < request.ranks; ++rank) {
    const auto found = std::find(known.begin(), known.end(), numbers[rank]);
    const auto group = static_cast<std::size_t>(found - known.begin());
    if (found == known.end()) {
      known.push_back(numbers[rank]);
      groups_.emplace_back();
    }
    groups_[group].push_back(rank);
    if (rank == rank_) own_group_ = group;
  }
  for (const auto& group : groups_) columns_ = std::max(columns_, static_cast<int>(group.size()));
  assert(columns_ >= 1 && contains(own(), rank_));
}

std::vector<int> Grouping::own_columns() const {
  std::vector<int> columns;
  for (int column = 0; column < columns_; ++column)
    if (holder(own(), column) == rank_) columns.push_back(column);
  assert(!columns.empty() && "each member stands in for at least one column");
  return columns;
}

Group Grouping::column(int column) const {
  assert(0 <= column && column < columns_);
  std::vector<int> ranks;
  for (const auto& group : groups_) ranks.push_back(holder(group, column));
  return {ranks, rank_};
}

Shares Grouping::local_columns() const {
  Shares shares(own().size());
  for (int column = 0; column < columns_; ++column) shares[column % own().size()].push_back(column);
  return shares;
}

Shares Grouping::local_blocks() const {
  Shares shares(own().size());
  for (int column = 0; column < columns_; ++column)
    for (const auto& blocks : column_blocks(column)) {
      auto& share = shares[column % own().size()];
      share.insert(share.end(), blocks.begin(), blocks.end());
    }
  return shares;
}

Shares Grouping::column_blocks(int column) const {
  assert(0 <= column && column < columns_);
  Shares shares;
  for (const auto& group : groups_) {
    auto& share = shares.emplace_back();
    if (column < static_cast<int>(group.size())) share.push_back(group[column]);
  }
  return shares;
}

std::vector<int> Grouping::leaders(int root) const {
  std::vector<int> leaders{root};
  for (const auto& group : groups_)
    if (!contains(group, root)) leaders.push_back(group.front());
  assert(leaders.size() == groups_.size());
  return leaders;
}

}  // namespace tutti::collectives
