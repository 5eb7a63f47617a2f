// The stages of which algorithms are composed: collectives among some of the ranks, each of which
// takes its values from where they are and leaves them where the next stage reads them. Each
// message carries one chunk.
#pragma once

#include <vector>

#include "collectives/algorithms/algorithms.h"

namespace tutti::collectives {

/// Some of the ranks in a given order; this rank is one of them.
class Group {
 public:
  Group(std::vector<int> ranks, int rank);
  /// Returns the group of all ranks, beginning with `first`. It takes no memory for each rank.
  static Group all(const PlanRequest& request, int first = 0);
  /// Returns the group of the ranks first, first + stride, ... with `size` members, the last of
  /// which is `last`. It takes no memory for each rank.
  static Group regular(int first, int stride, int size, int last, int index);

  int size() const { return size_; }
  int index() const { return index_; }  ///< The index of this rank.
  /// Returns the rank of member `index`, counted around the group: at(-1) is the last.
  int at(int index) const;
  int next() const { return at(index_ + 1); }
  int previous() const { return at(index_ - 1); }

 private:
  Group() = default;

  std::vector<int> ranks_;  // empty if the ranks follow from the numbers below
  int size_ = 0;
  int index_ = 0;
  int first_ = 0, stride_ = 1, last_ = 0;
  int around_ = 0;  // ranks are counted modulo this number
};

/// For each member, the chunks that a reduce_scatter leaves with it, or that it contributes to an
/// all_gather. Members may have different numbers of chunks, or none.
using Shares = std::vector<std::vector<int>>;

/// Returns the blocks of `count` ranks from `first` on, as two slices if they wrap around the last
/// of `ranks` ranks.
std::vector<Slice> blocks_around(int first, int count, int ranks);

/// Where a stage reads this rank's values and where it leaves its results. Chunk c is at index c in
/// both.
struct Between {
  Place from;
  Place to;
  bool completes;  ///< Whether the results are final.
};

/// Reduces each member's share on its way around the ring of the group to that member.
void ring_reduce_scatter(const Verbs& lane, const Group& group, const Shares& shares,
                         const Between& places);

/// Sends each member's share around the ring of the group, from output to output.
void ring_all_gather(const Verbs& lane, const Group& group, const Shares& shares);

}  // namespace tutti::collectives
