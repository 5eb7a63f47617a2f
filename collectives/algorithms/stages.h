// Stages of which algorithms are composed: a collective among some of the ranks, from where its
// values are to where the next stage finds them. Each moves one chunk a message.
#pragma once

#include <vector>

#include "collectives/schedule/verbs.h"

namespace tutti::collectives {

/// Some of the ranks in an order of their own; this rank is one of them.
class Group {
 public:
  Group(std::vector<int> ranks, int rank);
  /// All ranks, beginning with `first`.
  static Group all(const PlanRequest& request, int first = 0);

  int size() const { return static_cast<int>(ranks_.size()); }
  int index() const { return index_; }  ///< Of this rank.
  /// The rank of member `index`, counted around: at(-1) is the last.
  int at(int index) const;
  int next() const { return at(index_ + 1); }
  int previous() const { return at(index_ - 1); }

 private:
  std::vector<int> ranks_;
  int index_;
};

/// By member: the chunks that a reduce_scatter leaves with it, or that it brings to an all_gather.
/// Members may have different numbers of them, or none.
using Shares = std::vector<std::vector<int>>;

/// Where a stage reads this rank's values and leaves its results: chunk c in place c.
struct Between {
  Place from;
  Place to;
  bool completes;  ///< The results are final.
};

/// Around the ring of the group, each member's share is reduced on its way to it.
void ring_reduce_scatter(const Verbs& lane, const Group& group, const Shares& shares,
                         const Between& places);

/// Around the ring of the group, from output to output.
void ring_all_gather(const Verbs& lane, const Group& group, const Shares& shares);

}  // namespace tutti::collectives
