// The groups into which a request puts the ranks, and how their members share the work.
//
// Chunk or block c belongs to column c: the members of that number of all groups. A group that is
// smaller has its members stand in for the missing by turns. So each column has one member in each
// group, and each member works for one column or more.
#pragma once

#include <vector>

#include "collectives/algorithms/stages.h"

namespace tutti::collectives {

/// As one rank sees it.
class Grouping {
 public:
  explicit Grouping(const PlanRequest& request);
  Grouping(const Grouping&) = delete;
  Grouping& operator=(const Grouping&) = delete;

  int columns() const { return columns_; }        ///< Ranks of the largest group.
  std::vector<int> own_columns() const;           ///< For which this rank works, ascending.
  Group local() const { return {own(), rank_}; }  ///< The ranks of its group.
  Group column(int column) const;                 ///< The ranks that work for it, one a group.

  /// By member of this rank's group: the columns for which it works.
  Shares local_columns() const;
  /// By member of this rank's group: the ranks in the columns for which it works.
  Shares local_blocks() const;
  /// By member of the column: the rank of that number in its group, if there is one.
  Shares column_blocks(int column) const;

  /// Of each group its first rank; first of all the root, for its own group.
  std::vector<int> leaders(int root) const;

 private:
  const std::vector<int>& own() const { return groups_[own_group_]; }

  int rank_;
  std::vector<std::vector<int>> groups_;  // each with its ranks in order
  std::size_t own_group_ = 0;
  int columns_ = 0;
};

}  // namespace tutti::collectives
