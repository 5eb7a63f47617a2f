// Who is my neighbour, which chunk at stage s: pure functions of small numbers, tested for every
// rank count to 64.
#pragma once

#include <bit>
#include <compare>
#include <vector>

namespace tutti::collectives {

/// `number` modulo `ranks`, never negative.
constexpr int wrap(int number, int ranks) { return (number % ranks + ranks) % ranks; }

/// All other ranks, nearest successor first: when every rank goes through its list at the same
/// pace, no rank is everybody's target at once.
std::vector<int> others(int rank, int ranks);

/// With whom `rank` swaps in round `round` of `ranks`: mutual, everybody once over all rounds,
/// oneself in one of them (two ranks of an even number sit out the same round).
constexpr int swap_partner(int rank, int round, int ranks) { return wrap(round - rank, ranks); }

// --- ring: 0 -> 1 -> ... -> ranks-1 -> 0 ---

constexpr int ring_next(int rank, int ranks) { return wrap(rank + 1, ranks); }
constexpr int ring_previous(int rank, int ranks) { return wrap(rank - 1, ranks); }

/// The chunk that passes `rank` at stage `stage`, when each rank starts with the chunk of its own
/// number and hands on what it has just received: a rank's chunk at stage s is its predecessor's at
/// s - 1.
constexpr int ring_chunk(int rank, int stage, int ranks) { return wrap(rank - stage, ranks); }

/// How far `rank` stands behind `root` in the ring; rooted algorithms are written for root 0.
constexpr int relative_rank(int rank, int root, int ranks) { return wrap(rank - root, ranks); }

// --- k-nomial trees over members 0 to size - 1, to base `radix`: binomial for 2. The root is 0; a
// parent has 0 for its child's lowest digit that is not 0 ---

constexpr int knomial_parent(int member, int radix) {
  int place = 1;
  while (member > 0 && member / place % radix == 0) place *= radix;
  return member - member / place % radix * place;
}

/// Nearest first. The subtree of child m + d * radix^k is the members up to m + (d + 1) * radix^k,
/// so a node and its children in this order stand for consecutive members.
std::vector<int> knomial_children(int member, int radix, int size);

/// Members of the subtree at `member`, which is the first of them: they are consecutive.
int knomial_size(int member, int radix, int size);

// --- two binary trees below one root (Sanders, Speck, Träff 2009) ---

/// Ranks 1 to ranks - 1 stand in both trees, in order from left to right: in the first as they are,
/// so that odd ranks are leaves; in the second mirrored or moved on by one, so that even ranks are
/// (and rank 1, where it takes the place of an odd one). Rank 0 stands above both.
struct TwoTrees {
  int ranks;

  int parent(int rank, bool second) const;
  std::vector<int> children(int rank, bool second) const;

 private:
  int place(int rank, bool second) const;
  int rank_at(int place, bool second) const;
};

// --- recursive doubling ---

/// Doubling wants a power of two of members. Of the first 2 * extra() ranks each even one is
/// passive: the odd one behind it speaks for both. So consecutive members speak for consecutive
/// ranks.
struct Pairing {
  int ranks;

  constexpr int members() const { return static_cast<int>(std::bit_floor(unsigned(ranks))); }
  constexpr int rounds() const { return std::countr_zero(unsigned(members())); }
  constexpr int extra() const { return ranks - members(); }

  constexpr bool passive(int rank) const { return rank < 2 * extra() && rank % 2 == 0; }
  /// Whether active `rank` speaks for rank - 1, too.
  constexpr bool speaks_for_two(int rank) const { return rank < 2 * extra() && rank % 2 == 1; }

  constexpr int member(int active_rank) const {
    return active_rank < 2 * extra() ? active_rank / 2 : active_rank - extra();
  }
  constexpr int rank_of(int member) const {
    return member < extra() ? 2 * member + 1 : member + extra();
  }
  /// The first rank that `member` speaks for; for members(), the number of ranks.
  constexpr int first_rank(int member) const {
    return member < extra() ? 2 * member : member + extra();
  }
  /// The rank with which active `rank` exchanges in round `round`: 2^round members away.
  constexpr int partner(int active_rank, int round) const {
    return rank_of(member(active_rank) ^ (1 << round));
  }
};

/// Ranks [first, first + count).
struct RankRange {
  int first;
  int count;

  auto operator<=>(const RankRange&) const = default;
};

/// The ranks that `active_rank` and the members that differ from it in the lowest `round` bits
/// speak for: what it holds of an all-gather before that round.
constexpr RankRange doubling_range(const Pairing& pairing, int active_rank, int round) {
  const int begin = pairing.member(active_rank) >> round << round;
  const int first = pairing.first_rank(begin);
  return {first, pairing.first_rank(begin + (1 << round)) - first};
}

}  // namespace tutti::collectives
