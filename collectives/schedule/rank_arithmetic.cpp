#include "collectives/schedule/rank_arithmetic.h"

#include <algorithm>
#include <cassert>

namespace tutti::collectives {

static_assert(wrap(-1, 4) == 3 && wrap(4, 4) == 0 && relative_rank(1, 3, 4) == 2);
static_assert(ring_chunk(2, 3, 5) == ring_chunk(ring_previous(2, 5), 2, 5));
static_assert(swap_partner(swap_partner(1, 3, 5), 3, 5) == 1, "the relation is mutual");
static_assert(knomial_parent(6, 2) == 4 && knomial_parent(6, 4) == 4 && knomial_parent(0, 2) == 0);
static_assert(Pairing{6}.members() == 4 && Pairing{6}.extra() == 2 && Pairing{6}.rounds() == 2);
static_assert(Pairing{6}.passive(2) && Pairing{6}.speaks_for_two(3) && !Pairing{6}.passive(4));
static_assert(Pairing{6}.partner(Pairing{6}.partner(5, 1), 1) == 5, "the relation is mutual");
static_assert(Pairing{6}.first_rank(Pairing{6}.members()) == 6);
static_assert(doubling_range(Pairing{6}, 5, 2) == RankRange{0, 6});

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
  assert(0 < at && at < ranks && rank_at(at, second) == rank);
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
  assert(0 < at && at < ranks && rank_at(at, second) == rank);
  if (half == 0) return {};
  std::vector<int> children{rank_at(at - half, second)};
  int right = half;
  while (right > 0 && at + right >= ranks) right /= 2;
  if (right > 0) children.push_back(rank_at(at + right, second));
  assert(std::all_of(children.begin(), children.end(),
                     [&](int child) { return parent(child, second) == rank; }));
  return children;
}

int knomial_size(int member, int radix, int size) {
  assert(0 <= member && member < size && radix >= 2);
  int place = 1;
  while (place < size && member % (place * radix) == 0) place *= radix;
  return std::min(place, size - member);
}

}  // namespace tutti::collectives
