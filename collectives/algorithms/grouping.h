// The groups into which a request divides the ranks, and the division of work among their members.
//
// Chunk or block c belongs to column c: the members with number c of all groups. In a smaller
// group, the members stand in by turns for those that are missing. So each column has one member in
// each group, and each member works for one or more columns.
#pragma once

#include <vector>

#include "collectives/algorithms/stages.h"

namespace tutti::collectives {

/// The groups from the point of view of one rank.
class Grouping {
 public:
  explicit Grouping(const PlanRequest& request);
  Grouping(const Grouping&) = delete;
  Grouping& operator=(const Grouping&) = delete;

  int columns() const { return columns_; }  ///< Number of ranks in the largest group.
  std::vector<int> own_columns() const;     ///< The columns for which this rank works, ascending.
  Group local() const;                      ///< The ranks of this rank's group.
  Group column(int column) const;  ///< The ranks that work for the column, one in each group.

  /// Returns, for each member of this rank's group, the columns for which it works.
  Shares local_columns() const;
  /// Returns, for each member of this rank's group, the ranks in the columns for which it works.
  Shares local_blocks() const;
  /// Returns, for each member of the column, the rank with that number in its group, if there is
  /// one.
  Shares column_blocks(int column) const;

  /// Returns the leader of each group: the root for its own group, which comes first, and the first
  /// rank for each other group.
  std::vector<int> leaders(int root) const;

 private:
  void divide(const std::vector<int>& numbers);
  int groups() const;
  int size_of(int group) const;
  int member(int group, int index) const;
  int holder(int group, int column) const { return member(group, column % size_of(group)); }

  int rank_;
  int ranks_;
  int each_ = 0;  // the ranks of each group but the last, if groups are equal; 0 otherwise
  std::vector<std::vector<int>> listed_;  // the ranks of each group, in order, if they are not
  int own_group_ = 0;
  int columns_ = 0;
};

}  // namespace tutti::collectives
