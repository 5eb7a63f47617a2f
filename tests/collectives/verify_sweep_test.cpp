// Verifies every algorithm with every collective that it supports, every number of ranks up to 64
// and every root, in place and out of place.
#include <gtest/gtest.h>

#include "support.h"

namespace tutti::testing {
namespace {

constexpr int kMostRanks = 64;

using Case = std::tuple<std::size_t, Collective>;

class EveryAlgorithm : public ::testing::TestWithParam<Case> {
 protected:
  const Algorithm& algorithm() const { return algorithms()[std::get<0>(GetParam())]; }
  Collective what() const { return std::get<1>(GetParam()); }

  void prove(int ranks, int root, VerifyOptions options = {}) {
    for (const bool in_place : {false, true}) {
      options.in_place = in_place;
      prove_once(ranks, root, options);
    }
  }

  void prove_once(int ranks, int root, const VerifyOptions& options) {
    const Verdict verdict = verify(plan_all(algorithm(), what(), ranks, root), options);
    ASSERT_TRUE(verdict.ok) << algorithm().name << " " << to_string(what()) << ", " << ranks
                            << " ranks, root " << root << ", window " << options.window
                            << (options.in_place ? ", in place: " : ": ") << verdict.why;
  }
};

TEST_P(EveryAlgorithm, IsProvedForEveryRankCountAndRoot) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    if (!algorithm().knows(what(), ranks)) continue;
    const int roots = collectives::has_root(what()) ? ranks : 1;
    for (int root = 0; root < roots; ++root) {
      // The verification of all roots takes ranks^4 steps. Beyond 16 ranks, most roots are verified
      // for two pieces only, alternately in place and out of place.
      const bool fully = ranks <= 16 || root <= 1 || root == ranks / 2 || root == ranks - 1;
      if (fully)
        ASSERT_NO_FATAL_FAILURE(prove(ranks, root));
      else
        ASSERT_NO_FATAL_FAILURE(
            prove_once(ranks, root, {.pieces = 2, .operations = 1, .in_place = root % 2 == 0}));
    }
  }
}

TEST_P(EveryAlgorithm, IsProvedWithOnePieceWithManyAndWithWiderWindows) {
  for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17}) {
    if (!algorithm().knows(what(), ranks)) continue;
    for (const int window : {2, 3, 8})
      for (const int pieces : {1, 2, 7})
        ASSERT_NO_FATAL_FAILURE(prove(ranks, ranks / 2 * collectives::has_root(what()),
                                      {.window = window, .pieces = pieces, .operations = 3}));
  }
}

TEST_P(EveryAlgorithm, IsProvedForMoreRanksThanOneWordHoldsBits) {
  for (const int ranks : {65, 100, 129}) {
    if (!algorithm().knows(what(), ranks)) continue;
    ASSERT_NO_FATAL_FAILURE(prove(ranks, 1 * collectives::has_root(what())));
  }
}

std::vector<Case> known_pairs() {
  std::vector<Case> pairs;
  for (std::size_t i = 0; i < algorithms().size(); ++i)
    for (const Collective what : all_collectives())
      if (algorithms()[i].knows(what, 4)) pairs.emplace_back(i, what);
  return pairs;
}

std::string name_of(const ::testing::TestParamInfo<Case>& pair) {
  const auto [index, what] = pair.param;
  return std::string(algorithms()[index].name) + "_" + std::string(to_string(what));
}

INSTANTIATE_TEST_SUITE_P(Sweep, EveryAlgorithm, ::testing::ValuesIn(known_pairs()), name_of);

TEST(Algorithms, EveryCollectiveIsKnownToAtLeastTwoForEveryRankCount) {
  for (const Collective what : all_collectives())
    for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
      int known = 0;
      for (const Algorithm& algorithm : algorithms()) known += algorithm.knows(what, ranks);
      EXPECT_GE(known, 2) << to_string(what) << " of " << ranks << " ranks";
    }
}

}  // namespace
}  // namespace tutti::testing
