#include "collectives/schedule/rank_arithmetic.h"

#include <algorithm>
#include <cassert>

namespace tutti::collectives {

std::vector<int> others(int rank, int ranks) {
  assert(0 <= rank && rank < ranks);
  std::vector<int> list;
  list.reserve(ranks - 1);
  for (int distance = 1; distance < ranks; ++distance) list.push_back(wrap(rank + distance, ranks));
  return list;
}

std::vector<int> knomial_children(int member, int radix, int size) {
  assert(0 <= member && member < size && radix >= 2);
  std::vector<int> children;
  for (int place = 1; place < size && member % (place * radix) == 0; place *= radix)
    for (int digit = 1; digit < radix && member + digit * place < size; ++digit)
      children.push_back(member + digit * place);
  return children;
}

int TwoTrees::place(int rank, bool second) const {
  const int places = ranks - 1;
  if (!second || rank == 0) return rank;
  if (places % 2 == 0) return ranks - rank;
  return rank == 1 ? places : rank - 1;
}

int TwoTrees::rank_at(int place, bool second) const {
  const int places = ranks - 1;
  if (!second || place == 0) return place;
  if (places % 2 == 0) return ranks - place;
  return place % places + 1;
}

int TwoTrees::parent(int rank, bool second) const {
  assert(0 < rank && rank < ranks);
  const int at = place(rank, second);
  const int level = at & -at;
  const int above = (at ^ level) | level << 1;
  return rank_at(above < ranks ? above : at ^ level, second);
}

std::vector<int> TwoTrees::children(int rank, bool second) const {
  assert(0 <= rank && rank < ranks);
  if (ranks == 1) return {};
  if (rank == 0) return {rank_at(static_cast<int>(std::bit_floor(unsigned(ranks - 1))), second)};
  const int at = place(rank, second);
  const int half = (at & -at) / 2;
  if (half == 0) return {};
  std::vector<int> children{rank_at(at - half, second)};
  int right = half;
  while (right > 0 && at + right >= ranks) right /= 2;
  if (right > 0) children.push_back(rank_at(at + right, second));
  return children;
}

int knomial_size(int member, int radix, int size) {
  assert(0 <= member && member < size && radix >= 2);
  int place = 1;
  while (place < size && member % (place * radix) == 0) place *= radix;
  return std::min(place, size - member);
}

}  // namespace tutti::collectives
