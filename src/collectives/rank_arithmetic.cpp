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

}  // namespace tutti::collectives
