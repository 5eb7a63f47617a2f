// Rank arithmetic: which rank is a neighbour, which chunk belongs to stage s. These are pure
// functions of small numbers, tested for every number of ranks up to 64.
#pragma once

#include <bit>
#include <compare>
#include <vector>

namespace tutti::collectives {

/// Returns `number` modulo `ranks`, never negative.
constexpr int wrap(int number, int ranks) { return (number % ranks + ranks) % ranks; }

/// Returns all other ranks, the nearest successor first. If every rank goes through its list at the
/// same pace, no rank is the target of all others at once.
std::vector<int> others(int rank, int ranks);

/// Returns the rank with which `rank` exchanges in round `round` of `ranks`. The relation is
/// mutual. Over all rounds, each rank meets every rank once, itself in one of them (with an even
/// number of ranks, two ranks are idle in the same round).
constexpr int swap_partner(int rank, int round, int ranks) { return wrap(round - rank, ranks); }

// --- ring: 0 -> 1 -> ... -> ranks-1 -> 0 ---

constexpr int ring_next(int rank, int ranks) { return wrap(rank + 1, ranks); }
constexpr int ring_previous(int rank, int ranks) { return wrap(rank - 1, ranks); }

/// Returns the chunk that passes `rank` at stage `stage`, if each rank starts with the chunk of its
/// own number and passes on the chunk that it has just received: a rank's chunk at stage s is its
/// predecessor's at s - 1.
constexpr int ring_chunk(int rank, int stage, int ranks) { return wrap(rank - stage, ranks); }

/// Returns how far `rank` is behind `root` in the ring; rooted algorithms are written for root 0.
constexpr int relative_rank(int rank, int root, int ranks) { return wrap(rank - root, ranks); }

// --- k-nomial trees over members 0 to size - 1, to base `radix`: binomial for 2. The root is 0; a
// parent has 0 for its child's lowest digit that is not 0 ---

constexpr int knomial_parent(int member, int radix) {
  int place = 1;
  while (member > 0 && member / place % radix == 0) place *= radix;
  return member - member / place % radix * place;
}

/// Returns the children, the nearest first. The subtree of child m + d * radix^k contains the
/// members up to m + (d + 1) * radix^k, so a node and its children in this order represent
/// consecutive members.
std::vector<int> knomial_children(int member, int radix, int size);

/// Returns the number of members of the subtree at `member`, which is the first of them; they are
/// consecutive.
int knomial_size(int member, int radix, int size);

// --- two binary trees below one root (Sanders, Speck, Träff 2009) ---

/// Ranks 1 to ranks - 1 are in both trees, in order from left to right. In the first tree they are
/// in their own order, so that odd ranks are leaves. In the second the order is mirrored or shifted
/// by one, so that even ranks are leaves (and rank 1, where it takes the place of an odd one). Rank
/// 0 is the root above both.
struct TwoTrees {
  int ranks;

  int parent(int rank, bool second) const;
  std::vector<int> children(int rank, bool second) const;

 private:
  int place(int rank, bool second) const;
  int rank_at(int place, bool second) const;
};

// --- recursive doubling ---

/// Recursive doubling needs a power of two of members. Of the first 2 * extra() ranks, each even
/// one is passive, and the odd one behind it communicates for both. So consecutive members
/// represent consecutive ranks.
struct Pairing {
  int ranks;

  constexpr int members() const { return static_cast<int>(std::bit_floor(unsigned(ranks))); }
  constexpr int rounds() const { return std::countr_zero(unsigned(members())); }
  constexpr int extra() const { return ranks - members(); }

  constexpr bool passive(int rank) const { return rank < 2 * extra() && rank % 2 == 0; }
  /// Returns whether active `rank` also communicates for rank - 1.
  constexpr bool speaks_for_two(int rank) const { return rank < 2 * extra() && rank % 2 == 1; }

  constexpr int member(int active_rank) const {
    return active_rank < 2 * extra() ? active_rank / 2 : active_rank - extra();
  }
  constexpr int rank_of(int member) const {
    return member < extra() ? 2 * member + 1 : member + extra();
  }
  /// Returns the first rank that `member` represents; for members(), the number of ranks.
  constexpr int first_rank(int member) const {
    return member < extra() ? 2 * member : member + extra();
  }
  /// Returns the rank with which active `rank` exchanges in round `round`: 2^round members away.
  constexpr int partner(int active_rank, int round) const {
    return rank_of(member(active_rank) ^ (1 << round));
  }
};

/// The ranks [first, first + count).
struct RankRange {
  int first;
  int count;

  auto operator<=>(const RankRange&) const = default;
};

/// Returns the ranks that are represented by `active_rank` and by the members that differ from it
/// only in the lowest `round` bits. In an all-gather, these are the ranks whose blocks it holds
/// before that round.
constexpr RankRange doubling_range(const Pairing& pairing, int active_rank, int round) {
  const int begin = pairing.member(active_rank) >> round << round;
  const int first = pairing.first_rank(begin);
  return {first, pairing.first_rank(begin + (1 << round)) - first};
}

}  // namespace tutti::collectives
