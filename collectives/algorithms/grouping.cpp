#include "collectives/algorithms/grouping.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <unordered_map>

namespace tutti::collectives {
namespace {

/// Returns how many consecutive ranks each group has, or 0 if the request lists the groups.
int equal_size(const PlanRequest& request) {
  assert(request.groups.empty() || static_cast<int>(request.groups.size()) == request.ranks);
  if (!request.groups.empty()) return 0;
  if (request.group_size > 0) return std::min(request.group_size, request.ranks);
  // Nothing is known about groups, so there are about as many groups as ranks in a group.
  return static_cast<int>(std::ceil(std::sqrt(request.ranks)));
}

}  // namespace

Grouping::Grouping(const PlanRequest& request)
    : rank_(request.rank), ranks_(request.ranks), each_(equal_size(request)) {
  if (each_ > 0) {
    own_group_ = rank_ / each_;
    columns_ = each_;
  } else {
    divide(request.groups);
  }
  assert(columns_ >= 1 && own_group_ < groups());
}

void Grouping::divide(const std::vector<int>& numbers) {
  std::unordered_map<int, int> known;  // the group of each number in the request
  for (int rank = 0; rank < ranks_; ++rank) {
    const int group = known.try_emplace(numbers[rank], groups()).first->second;
    if (group == groups()) listed_.emplace_back();
    listed_[group].push_back(rank);
    if (rank == rank_) own_group_ = group;
  }
  for (const auto& group : listed_) columns_ = std::max(columns_, static_cast<int>(group.size()));
}

int Grouping::groups() const {
  return each_ > 0 ? (ranks_ + each_ - 1) / each_ : static_cast<int>(listed_.size());
}

int Grouping::size_of(int group) const {
  return each_ > 0 ? std::min(each_, ranks_ - group * each_)
                   : static_cast<int>(listed_[group].size());
}

int Grouping::member(int group, int index) const {
  assert(0 <= index && index < size_of(group));
  return each_ > 0 ? group * each_ + index : listed_[group][index];
}

Group Grouping::local() const {
  if (each_ == 0) return {listed_[own_group_], rank_};
  const int first = own_group_ * each_, size = size_of(own_group_);
  return Group::regular(first, 1, size, first + size - 1, rank_ - first);
}

std::vector<int> Grouping::own_columns() const {
  std::vector<int> columns;
  for (int column = 0; column < columns_; ++column)
    if (holder(own_group_, column) == rank_) columns.push_back(column);
  assert(!columns.empty() && "each member stands in for at least one column");
  return columns;
}

Group Grouping::column(int column) const {
  assert(0 <= column && column < columns_);
  const int last = groups() - 1;
  if (each_ > 0) return Group::regular(column, each_, groups(), holder(last, column), own_group_);
  std::vector<int> ranks;
  for (int group = 0; group <= last; ++group) ranks.push_back(holder(group, column));
  return {ranks, rank_};
}

Shares Grouping::local_columns() const {
  const int own = size_of(own_group_);
  Shares shares(static_cast<std::size_t>(own));
  for (int column = 0; column < columns_; ++column) shares[column % own].push_back(column);
  return shares;
}

Shares Grouping::local_blocks() const {
  const int own = size_of(own_group_);
  Shares shares(static_cast<std::size_t>(own));
  for (int column = 0; column < columns_; ++column)
    for (const auto& blocks : column_blocks(column)) {
      auto& share = shares[column % own];
      share.insert(share.end(), blocks.begin(), blocks.end());
    }
  return shares;
}

Shares Grouping::column_blocks(int column) const {
  assert(0 <= column && column < columns_);
  Shares shares;
  for (int group = 0; group < groups(); ++group) {
    auto& share = shares.emplace_back();
    if (column < size_of(group)) share.push_back(member(group, column));
  }
  return shares;
}

std::vector<int> Grouping::leaders(int root) const {
  std::vector<int> leaders{root};
  const auto has_root = [&](int group) {
    if (each_ > 0) return root / each_ == group;
    return std::find(listed_[group].begin(), listed_[group].end(), root) != listed_[group].end();
  };
  for (int group = 0; group < groups(); ++group)
    if (!has_root(group)) leaders.push_back(member(group, 0));
  assert(static_cast<int>(leaders.size()) == groups());
  return leaders;
}

}  // namespace tutti::collectives
