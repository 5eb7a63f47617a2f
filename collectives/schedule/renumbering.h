// Renumbering: an algorithm whose messages go mostly between ranks of near numbers is planned for
// virtual ranks, which number the ranks of each group (machine) consecutively, and then the numbers
// in its schedule are replaced by those of the ranks. So its messages leave a group as rarely as
// they can, however a launcher has dealt out the ranks.
#pragma once

#include <vector>

#include "collectives/schedule/rounds.h"

namespace tutti::collectives {

/// How the ranks are numbered for an algorithm if they form groups.
enum class Numbering {
  ranks,  ///< The algorithm is planned for the ranks themselves.
  near,   ///< The ranks of a group have consecutive virtual ranks, in the order of their places.
  far,    ///< The virtual ranks of a group are as far apart as they can be: groups take turns. It
          ///< suits algorithms whose longest messages go between numbers that are half of the ranks
          ///< apart.
};

/// The virtual ranks for one request. Within a group they follow the ranks' places, then their
/// numbers, beginning with the group's first rank; groups come in the order of their first ranks.
/// If the collective has a root, that is virtual rank 0, and its group is the first one. Every rank
/// computes the same virtual ranks.
class Renumbering {
 public:
  Renumbering(const PlanRequest& request, Numbering numbering);

  /// Returns whether the virtual ranks differ from the ranks. They do not if neither groups nor
  /// places are known; groups say nothing if there is only one, or one for each rank.
  bool needed() const { return !rank_of_.empty(); }
  /// Returns the request to the algorithm, for this rank's virtual rank.
  PlanRequest request() const;
  /// Returns whether the numbers in a schedule can be replaced: a message that carries the blocks
  /// of several ranks needs them side by side in the call's buffers. The answer is the same on all
  /// ranks.
  static bool possible(const Schedule& schedule);
  /// Replaces virtual ranks by ranks, and in the blocks layout also the numbers of blocks.
  Rounds with_ranks(Rounds rounds) const;

 private:
  const PlanRequest& asked_;
  std::vector<int> rank_of_;  // indexed by virtual rank; empty if they are the same
};

}  // namespace tutti::collectives
