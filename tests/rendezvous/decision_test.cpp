// Tests of a decision of several ranks, in any order of their requests, some of which end.
#include "rendezvous/decision.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "counting_store.h"
#include "rendezvous/store/memory_store.h"
#include "turns.h"

namespace tutti::test {
namespace {

// Proposes until something is decided.
std::string decide(Decision& decision, const std::string& value) {
  for (;;)
    if (const auto decided = decision.propose(value, {})) return *decided;
}

TEST(Decision, OfOneRankIsWhatItProposesAndStays) {
  MemoryStore store;
  Decision decision(store, "d");
  EXPECT_FALSE(decision.look({}));
  EXPECT_EQ(decision.propose("first", {}), "first");
  EXPECT_EQ(decision.propose("second", {}), "first");
  Decision late(store, "d");
  EXPECT_EQ(late.look({}), "first");
  EXPECT_EQ(late.propose("third", {}), "first");
}

TEST(Decision, TakesEightRequestsAndOneToReadWhetherThereIsOne) {
  MemoryStore memory;
  CountingStore store(memory);
  Decision decision(store, "d");
  decision.propose("value", {});
  EXPECT_EQ(store.calls, 8);
  EXPECT_EQ(decision.look({}), "value");
  EXPECT_EQ(store.calls, 8) << "what is known is not asked again";
}

TEST(Decision, IsOneThatWasProposedAndTheSameForAllWhateverTheOrder) {
  constexpr int kRanks = 4;
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Turns turns(kRanks, seed);
    std::vector<std::string> decided(kRanks);
    ASSERT_TRUE(turns.run([&](int rank) {
      const auto store = turns.store(rank);
      Decision decision(*store, "d");
      decided[static_cast<std::size_t>(rank)] = decide(decision, fmt::format("of rank {}", rank));
    }));
    EXPECT_THAT(decided, testing::Each(decided[0]));
    EXPECT_THAT(decided[0], testing::StartsWith("of rank "));
    seen.insert(decided[0]);
  }
  EXPECT_GT(seen.size(), 1u) << "the seeds make no difference";
}

// Each rank but the last ends at a request that the seed draws, many of them in the middle.
TEST(Decision, IsTheSameForAllThatLearnItAlthoughOthersEndInTheMiddle) {
  constexpr int kRanks = 4, kRequests = 14;
  int ended = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    SeededRandom random(seed);
    Turns turns(kRanks, random.next());
    std::vector<std::shared_ptr<Store>> stores;
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto last = static_cast<int>(random.next() % kRequests);
      const bool made = random.next() % 2 == 0;
      stores.push_back(rank + 1 < kRanks ? turns.store(rank, last, made) : turns.store(rank));
    }
    std::set<std::string> decided;
    ASSERT_TRUE(turns.run([&](int rank) {
      Decision decision(*stores[static_cast<std::size_t>(rank)], "d");
      decided.insert(decide(decision, fmt::format("of rank {}", rank)));
    }));
    EXPECT_EQ(decided.size(), 1u) << testing::PrintToString(decided);
    for (int rank = 0; rank < kRanks; ++rank) ended += turns.lost(rank) ? 1 : 0;
  }
  EXPECT_GT(ended, 1000);
}

// Rank 0 ends at each of its requests in turn, before or after it; then rank 1 comes alone.
TEST(Decision, IsMadeByTheNextRankWhereverTheFirstOneEnds) {
  for (int last = 0; last < 8; ++last)
    for (const bool made : {false, true}) {
      SCOPED_TRACE(fmt::format("ends {} request {}", made ? "after" : "before", last));
      Turns turns(2, 1);
      std::string decided;
      const auto first = turns.store(0, last, made), second = turns.store(1);
      ASSERT_TRUE(turns.run([&](int rank) {
        if (rank == 1)
          while (!turns.lost(0)) turns.pass(1);
        Decision decision(rank == 0 ? *first : *second, "d");
        decided = decide(decision, rank == 0 ? "of the first" : "of the second");
      }));
      // Once the first one's ballot has a value, that is the value: it may have been decided.
      const bool written = last > 4 || (last == 4 && made);
      EXPECT_EQ(decided, written ? "of the first" : "of the second");
    }
}

}  // namespace
}  // namespace tutti::test
