// Tests of the agreements of a communicator's ranks over a store, in any order of their requests,
// of which any rank may end at any one. The ranks take turns; nothing depends on the time.
#include "runtime/membership/regroup.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "../rendezvous/turns.h"
#include "rendezvous/store/memory_store.h"
#include "runtime/membership/agree.h"
#include "runtime/membership/round.h"
#include "threads.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr int kRanks = 4;

/// Says how each rank ends its part.
struct Ends {
  std::vector<std::shared_ptr<Store>> stores;
  SeededRandom random;
  int survivors = 0;

  // Each rank but the last ends at one of its first `requests` requests, as the seed decides, or
  // not at all.
  Ends(Turns& turns, std::uint64_t seed, int requests) : random(seed) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto last = static_cast<int>(random.next() % static_cast<unsigned>(requests));
      const bool made = random.next() % 2 == 0, ends = random.next() % 4 != 0;
      const bool lives = rank + 1 == kRanks || !ends;
      stores.push_back(lives ? turns.store(rank) : turns.store(rank, last, made));
    }
  }
};

// Calls `step` until it returns true, with a clock of this rank's own that goes on by a millisecond
// each time. Returns its error.
template <typename Step>
std::string until_done(TimePoint& now, Step step) {
  return outcome_of([&] {
    while (!step(now)) now += 1ms;
  });
}

/// A store that is far away: an answer takes a quarter of a second.
class FarStore final : public Store {
 public:
  void set(std::string_view, std::string_view, Deadline) override {}
  std::string get(std::string_view, Deadline deadline) override {
    const Deadline answer = std::chrono::steady_clock::now() + 250ms;
    std::this_thread::sleep_until(std::min(answer, deadline));
    if (deadline < answer) throw Error(ErrorKind::timeout, "the answer takes longer");
    return "far";
  }
  std::int64_t add(std::string_view, std::int64_t, Deadline) override { return 0; }
  void wait(std::string_view key, Deadline deadline) override { get(key, deadline); }
};

TEST(WatchedStores, AreAnsweredFromFarAwayAndLookMeanwhile) {
  int looks = 0;
  WatchedStore store(std::make_shared<FarStore>(), [&] { ++looks; });
  EXPECT_EQ(store.get("key", std::chrono::steady_clock::now() + 5s), "far");
  EXPECT_GE(looks, 1);
  EXPECT_THROW(store.get("key", std::chrono::steady_clock::now() + 10ms), Error);
  WatchedStore hopeless(std::make_shared<FarStore>(),
                        [] { throw Error(ErrorKind::peer_lost, "in vain"); });
  EXPECT_THROW(hopeless.wait("key", std::chrono::steady_clock::now() + 5s), Error);
}

TEST(RegroupingByTurns, MakesOneGroupOfThoseThatGetOneWhereverOthersEnd) {
  int groups = 0, ended = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Turns turns(kRanks, seed);
    Ends ends(turns, seed, 60);
    std::map<std::string, std::set<int>> members_of, got;
    std::vector<std::string> errors(kRanks);
    ASSERT_TRUE(turns.run([&](int rank) {
      Regrouping shrinking(ends.stores[rank], "shrink", rank, kRanks, "shrink");
      Regrouped group;
      const auto join = [&](const Regrouped& all, const std::shared_ptr<Store>& store, TimePoint) {
        group = all;
        // A start-up in little: each waits for all.
        store->add(all.name + "/met", 1, {});
        while (store->add(all.name + "/met", 0, {}) < static_cast<std::int64_t>(all.size()))
          for (const int member : all.members)
            if (turns.lost(member)) throw Error(ErrorKind::peer_lost, "a member has ended");
      };
      TimePoint now{};
      shrinking.begin(now, 1h, {});
      errors[rank] = until_done(now, [&](TimePoint at) {
        return shrinking.step(
            at, [&] { return turns.lost(); }, join);
      });
      if (!errors[rank].empty()) return;
      members_of[group.name] = {group.members.begin(), group.members.end()};
      got[group.name].insert(rank);
    }));
    EXPECT_THAT(errors, Each(AnyOf(IsEmpty(), HasSubstr("without this rank"))));
    // A member that got its communicator may end after that; nobody else may have another one.
    ASSERT_EQ(got.size(), 1u);
    const auto& [name, ranks] = *got.begin();
    for (int rank = 0; rank < kRanks; ++rank) {
      ended += turns.lost(rank) ? 1 : 0;
      if (!turns.lost(rank) && members_of[name].contains(rank)) {
        EXPECT_TRUE(ranks.contains(rank)) << rank << ": " << errors[rank];
      }
    }
    groups += members_of[name].size() > 1 ? 1 : 0;
  }
  EXPECT_GT(groups, 50);
  EXPECT_GT(ended, 300);
}

// Patience runs out for some while others are on their way: fewer than three never go on.
// The process that serves the store is frozen, and is killed when the patience of all has ended.
// The first rank that then reaches the one which takes its place waits a little for the others,
// and no longer than a second, although the store stands still again and again.
TEST(Regroupings, WaitForThoseThatCouldNotReachTheStoreBeforeThePatienceEnded) {
  const auto store = std::make_shared<MemoryStore>();
  const auto lost = [] { return std::vector<bool>{false, false, true}; };
  std::vector<int> members;
  const auto join = [&](const Regrouped& all, const auto&, TimePoint) { members = all.members; };
  const TimePoint begin = std::chrono::steady_clock::now();
  for (const bool comes : {true, false}) {
    SCOPED_TRACE(comes);
    Regrouping first(store, fmt::format("shrink {}", comes), 0, 3, "shrink");
    Regrouping second(store, fmt::format("shrink {}", comes), 1, 3, "shrink");
    first.begin(begin, 3s, {});
    EXPECT_FALSE(first.step(begin + 4500ms, lost, join));
    if (comes) second.begin(begin, 3s, {});
    TimePoint now = begin + 4510ms;
    bool done = false, others_done = !comes;
    for (; now < begin + 20s && !(done && others_done); now += 300ms) {
      done = done || first.step(now, lost, join);
      others_done = others_done || second.step(now, lost, join);
    }
    EXPECT_TRUE(done && others_done);
    EXPECT_EQ(members, comes ? (std::vector{0, 1}) : std::vector{0});
    EXPECT_LT(now - begin, comes ? 6s : 8s);
  }
}

TEST(Regroupings, WhoseMembersCouldNotJoinInTimeNamePatience) {
  const auto store = std::make_shared<MemoryStore>();
  Regrouping growing(store, "grow", 0, 1, "grow");
  growing.begin(std::chrono::steady_clock::now(), 1ms, {});
  const auto in_vain = [](const auto&...) { throw Error(ErrorKind::timeout, "one did not come"); };
  const auto none = [] { return std::vector<bool>(1); };
  const std::string failure = outcome_of([&] {
    while (!growing.step(std::chrono::steady_clock::now(), none, in_vain)) continue;
  });
  EXPECT_THAT(failure,
              testing::HasSubstr("(one did not come); call grow() again, with more patience: "
                                 "they had 2000 ms of it"));
}

TEST(RegroupingByTurns, NeverGoesOnWithFewerRanksThanOneDemands) {
  int made = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Turns turns(kRanks, seed);
    Ends ends(turns, seed, 20);
    std::set<std::string> names;
    ASSERT_TRUE(turns.run([&](int rank) {
      Regrouping shrinking(ends.stores[rank], "shrink", rank, kRanks, "shrink");
      const auto join = [&](const Regrouped& all, const auto&, TimePoint) {
        EXPECT_GE(all.members.size(), all.includes(1) ? 3u : 2u);
        names.insert(all.name);
      };
      TimePoint now{};
      shrinking.begin(now, 100ms, {rank == 1 ? 3 : 2, 0});
      const std::string error = until_done(now, [&](TimePoint at) {
        return shrinking.step(
            at, [&] { return turns.lost(); }, join);
      });
      (error.empty() ? made : refused) += 1;
      EXPECT_THAT(error, AnyOf(IsEmpty(), HasSubstr("fewer than"), HasSubstr("without this rank"),
                               HasSubstr("another one")));
    }));
    EXPECT_LE(names.size(), 1u);
  }
  EXPECT_GT(made, 50);
  EXPECT_GT(refused, 50);
}

TEST(AgreeingByTurns, GivesAllThatReturnTheSameWhereverOthersEnd) {
  int absent = 0, ended = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Turns turns(kRanks, seed);
    Ends ends(turns, seed, 40);
    constexpr int kCalls = 3;
    std::vector<std::set<std::pair<std::uint64_t, std::vector<int>>>> results(kCalls);
    ASSERT_TRUE(turns.run([&](int rank) {
      Agreeing agreeing(ends.stores[rank], "agree", rank, kRanks);
      for (auto& result : results) {
        TimePoint now{};
        agreeing.begin(now, ~(std::uint64_t{1} << rank), 1h);
        for (;; now += 1ms)
          if (const auto agreed = agreeing.step(now, [&] { return turns.lost(); })) {
            result.emplace(agreed->flags, agreed->absent);
            break;
          }
      }
    }));
    for (const auto& result : results) {
      ASSERT_EQ(result.size(), 1u);
      const auto& [flags, missing] = *result.begin();
      // The flags are those of exactly the ranks that took part.
      for (int rank = 0; rank < kRanks; ++rank) {
        const bool out = std::find(missing.begin(), missing.end(), rank) != missing.end();
        EXPECT_EQ((flags >> rank & 1) != 0, out);
        EXPECT_TRUE(!out || turns.lost(rank));
      }
      absent += missing.empty() ? 0 : 1;
    }
    for (int rank = 0; rank < kRanks; ++rank) ended += turns.lost(rank) ? 1 : 0;
  }
  EXPECT_GT(absent, 100);
  EXPECT_GT(ended, 300);
}

TEST(AgreeingOverADamagedStore, IsCorruptWhereItCannotBeAResult) {
  const TimePoint now = std::chrono::steady_clock::now();
  for (const char* const text : {"", "x", "-", "7 2", "7 -1", "7 1 0", "7 1 1", "7 0 x"}) {
    const auto store = std::make_shared<MemoryStore>();
    Decision(*store, "agree/0/result").propose(text, now);
    Agreeing agreeing(store, "agree", 0, 2);
    agreeing.begin(now, 7, 1000ms);
    EXPECT_THAT(outcome_of([&] { agreeing.step(now, [] { return std::vector<bool>(2); }); }),
                AllOf(StartsWith("corrupt"), HasSubstr("agreed on")));
  }
}

TEST(AgreeingAfterAnError, OfTheStoreGoesOnWithTheSameAgreement) {
  const auto store = std::make_shared<MemoryStore>();
  const TimePoint now = std::chrono::steady_clock::now();
  Agreeing first(store, "agree", 0, 2), second(store, "agree", 1, 2);
  const auto none = [] { return std::vector<bool>(2); };
  first.begin(now, 6, 1000ms);
  EXPECT_FALSE(first.step(now, none));
  EXPECT_THAT(outcome_of([&] {
                first.step(now + 1s, []() -> std::vector<bool> {
                  throw Error(ErrorKind::timeout, "the store is slow");
                });
              }),
              HasSubstr("slow"));
  second.begin(now, 3, 1000ms);
  const auto agreed = second.step(now, none);
  ASSERT_TRUE(agreed);
  EXPECT_EQ(agreed->flags, 2u);
  first.begin(now, 0xff, 1000ms);  // it has told its flags already
  EXPECT_EQ(first.step(now, none)->flags, 2u);
}

}  // namespace
}  // namespace tutti::test
