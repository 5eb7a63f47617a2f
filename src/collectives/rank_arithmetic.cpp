#include "collectives/rank_arithmetic.h"

#include <cassert>

namespace tutti::collectives {

std::vector<int> others(int rank, int ranks) {
  assert(0 <= rank && rank < ranks);
  std::vector<int> list;
  list.reserve(ranks - 1);
  for (int distance = 1; distance < ranks; ++distance) list.push_back(wrap(rank + distance, ranks));
  return list;
}

std::vector<int> tree_children(int relative, int ranks) {
  assert(0 <= relative && relative < ranks);
  std::vector<int> children;
  const int lowest_bit = relative & -relative;
  for (int bit = 1; relative + bit < ranks && (relative == 0 || bit < lowest_bit); bit *= 2)
    children.push_back(relative + bit);
  return children;
}

}  // namespace tutti::collectives
