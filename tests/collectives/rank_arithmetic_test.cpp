#include "collectives/schedule/rank_arithmetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace tutti::collectives {
namespace {

constexpr int kMostRanks = 64;

TEST(RankArithmetic, WrapBringsEveryNumberIntoTheRanks) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks)
    for (int number = -3 * ranks; number <= 3 * ranks; ++number) {
      const int wrapped = wrap(number, ranks);
      EXPECT_TRUE(0 <= wrapped && wrapped < ranks);
      EXPECT_EQ((number - wrapped) % ranks, 0);
    }
}

TEST(RankArithmetic, OthersAreAllRanksButOneNearestSuccessorFirst) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks)
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<int> list = others(rank, ranks);
      const std::set<int> distinct(list.begin(), list.end());
      ASSERT_EQ(int(list.size()), ranks - 1);
      EXPECT_EQ(distinct.size(), list.size());
      EXPECT_FALSE(distinct.contains(rank));
      if (ranks > 1) {
        EXPECT_EQ(list.front(), ring_next(rank, ranks));
      }
    }
}

TEST(RankArithmetic, AtEachPlaceInTheirListsAllRanksNameDifferentOthers) {
  for (int ranks = 2; ranks <= kMostRanks; ++ranks)
    for (int place = 0; place < ranks - 1; ++place) {
      std::set<int> targets;
      for (int rank = 0; rank < ranks; ++rank) targets.insert(others(rank, ranks)[place]);
      EXPECT_EQ(int(targets.size()), ranks);
    }
}

TEST(RankArithmetic, SwapPartnersAreMutualAndEverybodyIsMetOnce) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks)
    for (int rank = 0; rank < ranks; ++rank) {
      std::set<int> met;
      for (int round = 0; round < ranks; ++round) {
        const int partner = swap_partner(rank, round, ranks);
        met.insert(partner);
        EXPECT_EQ(swap_partner(partner, round, ranks), rank);
      }
      EXPECT_EQ(int(met.size()), ranks);
    }
}

TEST(RankArithmetic, RingNeighboursAreEachOthers) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks)
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(ring_previous(ring_next(rank, ranks), ranks), rank);
      EXPECT_EQ(ring_next(rank, ranks), (rank + 1) % ranks);
    }
}

TEST(RankArithmetic, ARingStageWorksOnWhatThePredecessorHadOneStageBefore) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks)
    for (int rank = 0; rank < ranks; ++rank) {
      std::set<int> visited;
      for (int stage = 0; stage < ranks; ++stage) {
        visited.insert(ring_chunk(rank, stage, ranks));
        EXPECT_EQ(ring_chunk(rank, stage + 1, ranks),
                  ring_chunk(ring_previous(rank, ranks), stage, ranks));
      }
      EXPECT_EQ(int(visited.size()), ranks) << "once around, every chunk passes";
      EXPECT_EQ(ring_chunk(rank, 0, ranks), rank);
    }
}

TEST(RankArithmetic, RelativeRanksCountFromTheRoot) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks)
    for (int root = 0; root < ranks; ++root) {
      EXPECT_EQ(relative_rank(root, root, ranks), 0);
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(wrap(root + relative_rank(rank, root, ranks), ranks), rank);
    }
}

constexpr int kRadixes[] = {2, 3, 4, 8};

int levels(int radix, int ranks) {
  int levels = 0;
  for (int reached = 1; reached < ranks; reached *= radix) ++levels;
  return levels;
}

TEST(RankArithmetic, EveryTreeNodeIsAChildOfItsParentAndReachesTheRootInLogarithmicSteps) {
  for (const int radix : kRadixes)
    for (int ranks = 1; ranks <= kMostRanks; ++ranks)
      for (int rank = 1; rank < ranks; ++rank) {
        const std::vector<int> siblings =
            knomial_children(knomial_parent(rank, radix), radix, ranks);
        EXPECT_EQ(std::count(siblings.begin(), siblings.end(), rank), 1);
        int depth = 0;
        for (int node = rank; node != 0; node = knomial_parent(node, radix)) ++depth;
        EXPECT_LE(depth, levels(radix, ranks));
      }
}

/// Returns the ranks of a subtree, in the order in which its nodes reduce: first the node itself,
/// then child by child.
std::vector<int> subtree(int node, int radix, int ranks) {
  std::vector<int> list{node};
  for (const int child : knomial_children(node, radix, ranks)) {
    const std::vector<int> below = subtree(child, radix, ranks);
    list.insert(list.end(), below.begin(), below.end());
  }
  return list;
}

TEST(RankArithmetic, ASubtreeIsItsNodeAndTheSubtreesOfItsChildren) {
  for (const int radix : kRadixes)
    for (int ranks = 1; ranks <= kMostRanks; ++ranks)
      for (int node = 0; node < ranks; ++node) {
        int next = node + 1;
        for (const int child : knomial_children(node, radix, ranks)) {
          EXPECT_EQ(child, next) << "subtrees of children follow each other";
          next += knomial_size(child, radix, ranks);
        }
        EXPECT_EQ(next - node, knomial_size(node, radix, ranks));
      }
}

TEST(RankArithmetic, ATreesOrderOfReductionIsTheOrderOfRanks) {
  for (const int radix : kRadixes)
    for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
      const std::vector<int> all = subtree(0, radix, ranks);
      ASSERT_EQ(int(all.size()), ranks);
      EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
    }
}

TEST(RankArithmetic, TwoTreesAreTreesOfAllRanksOfLogarithmicHeight) {
  for (int ranks = 2; ranks <= kMostRanks; ++ranks)
    for (const bool second : {false, true}) {
      const TwoTrees trees{ranks};
      for (int rank = 1; rank < ranks; ++rank) {
        const int parent = trees.parent(rank, second);
        const std::vector<int> siblings = trees.children(parent, second);
        EXPECT_EQ(std::count(siblings.begin(), siblings.end(), rank), 1) << rank << " of " << ranks;
        EXPECT_LE(siblings.size(), parent == 0 ? 1u : 2u);
        int depth = 0;
        for (int node = rank; node != 0 && depth <= ranks; node = trees.parent(node, second))
          ++depth;
        EXPECT_LE(depth, int(std::bit_width(unsigned(ranks - 1))) + 1);
      }
    }
}

TEST(RankArithmetic, NoRankButTheRootIsAnInnerNodeOfBothTrees) {
  for (int ranks = 2; ranks <= kMostRanks; ++ranks)
    for (int rank = 1; rank < ranks; ++rank) {
      const TwoTrees trees{ranks};
      EXPECT_TRUE(trees.children(rank, false).empty() || trees.children(rank, true).empty())
          << rank << " of " << ranks;
    }
}

TEST(RankArithmetic, EveryRankIsPassiveOrTheOnlyActiveOneOfItsMember) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    const Pairing pairing{ranks};
    EXPECT_EQ(pairing.members(), 1 << pairing.rounds());
    EXPECT_TRUE(pairing.members() <= ranks && ranks < 2 * pairing.members());
    std::set<int> members;
    for (int rank = 0; rank < ranks; ++rank) {
      if (pairing.passive(rank)) {
        EXPECT_TRUE(pairing.speaks_for_two(rank + 1));
        continue;
      }
      EXPECT_TRUE(members.insert(pairing.member(rank)).second);
      EXPECT_EQ(pairing.rank_of(pairing.member(rank)), rank);
      EXPECT_EQ(pairing.first_rank(pairing.member(rank)),
                pairing.speaks_for_two(rank) ? rank - 1 : rank);
    }
    EXPECT_EQ(int(members.size()), pairing.members());
    EXPECT_EQ(pairing.first_rank(pairing.members()), ranks);
  }
}

TEST(RankArithmetic, DoublingPartnersAreEachOthersAndTheirRangesMakeTheNextRound) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    const Pairing pairing{ranks};
    for (int rank = 0; rank < ranks; ++rank) {
      if (pairing.passive(rank)) continue;
      for (int round = 0; round < pairing.rounds(); ++round) {
        const int partner = pairing.partner(rank, round);
        EXPECT_EQ(pairing.partner(partner, round), rank);
        const RankRange low = doubling_range(pairing, std::min(rank, partner), round);
        const RankRange high = doubling_range(pairing, std::max(rank, partner), round);
        EXPECT_EQ(low.first + low.count, high.first);
        EXPECT_EQ(doubling_range(pairing, rank, round + 1),
                  (RankRange{low.first, low.count + high.count}));
      }
      EXPECT_EQ(doubling_range(pairing, rank, pairing.rounds()), (RankRange{0, ranks}));
    }
  }
}

}  // namespace
}  // namespace tutti::collectives
