// Tests of communicators that are split off others: their members, and their independence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>
#include <numeric>

#include "threads.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

// Returns the ranks of `comm` as numbers that their threads know: each rank contributes its own.
std::vector<int> who(Communicator& comm, int own) {
  std::vector<int> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(&own, all.data(), 1, DataType::int32);
  return all;
}

// Makes a communicator in one of three ways by turns: of all ranks, of those of one parity, and of
// all but the last.
std::optional<Communicator> child_of(Communicator& comm, int round) {
  std::vector<int> but_last(static_cast<std::size_t>(comm.size() - 1));
  std::iota(but_last.begin(), but_last.end(), 0);
  switch (round % 3) {
    case 0: return comm.dup();
    case 1: return comm.split(comm.rank() % 2);
    default: return comm.subgroup(but_last);
  }
}

class Split : public testing::TestWithParam<const char*> {
 protected:
  void on_ranks(int size, const std::function<void(Communicator&)>& body) const {
    EXPECT_THAT(run_ranks(size, quick_config(GetParam()), body), Each(IsEmpty()));
  }
};

TEST_P(Split, ByColorAndKeyThenByTheOldRank) {
  on_ranks(5, [](Communicator& comm) {
    auto part = comm.split(comm.rank() % 2);
    ASSERT_TRUE(part);
    const std::vector<int> expected =
        comm.rank() % 2 == 0 ? std::vector{0, 2, 4} : std::vector{1, 3};
    EXPECT_EQ(who(*part, comm.rank()), expected);
    auto backwards = comm.split(0, -comm.rank());
    EXPECT_EQ(backwards->rank(), 4 - comm.rank());
    EXPECT_EQ(who(*backwards, comm.rank()), (std::vector{4, 3, 2, 1, 0}));
    EXPECT_EQ(comm.split(comm.rank() == 3 ? 7 : kNoColor).has_value(), comm.rank() == 3);
    EXPECT_EQ(who(comm, comm.rank()), (std::vector{0, 1, 2, 3, 4})) << "the old one goes on";
  });
}

TEST_P(Split, OfASplitOfASplit) {
  on_ranks(4, [](Communicator& comm) {
    auto half = comm.split(comm.rank() / 2);
    auto again = half->dup();
    auto one = again.split(again.rank());
    EXPECT_EQ(who(again, comm.rank()), (std::vector{comm.rank() / 2 * 2, comm.rank() / 2 * 2 + 1}));
    EXPECT_EQ(who(*one, comm.rank()), std::vector{comm.rank()});
    auto across = comm.split(comm.rank() % 2);
    EXPECT_EQ(who(*across, comm.rank()), (std::vector{comm.rank() % 2, comm.rank() % 2 + 2}));
  });
}

TEST_P(Split, ASubgroupHasTheOrderOfItsList) {
  on_ranks(4, [](Communicator& comm) {
    auto group = comm.subgroup(std::array{3, 0, 2});
    ASSERT_EQ(group.has_value(), comm.rank() != 1);
    if (!group) return;
    EXPECT_EQ(who(*group, comm.rank()), (std::vector{3, 0, 2}));
  });
}

TEST_P(Split, LargeBuffersToo) {
  on_ranks(3, [](Communicator& comm) {
    auto dup = comm.dup();
    std::vector<float> data(1'000'003, static_cast<float>(comm.rank() + 1));
    dup.all_reduce(std::span(data));
    EXPECT_THAT(data, Each(6.0F));
    EXPECT_GT(dup.memory_bytes(), 0u);
  });
}

TEST_P(Split, OutlivesTheOneItCameFrom) {
  on_ranks(2, [](Communicator& comm) {
    std::optional<Communicator> kept = comm.dup();
    { const Communicator gone = std::move(comm); }
    for (int round = 0; round < 100; ++round)
      EXPECT_EQ(who(*kept, kept->rank()), (std::vector{0, 1}));
    Work work = kept->barrier_async();
    work.wait();
  });
}

TEST_P(Split, AFailureStaysInTheCommunicatorThatHasIt) {
  on_ranks(2, [](Communicator& comm) {
    auto dup = comm.dup();
    float x = 1;
    EXPECT_THAT(outcome_of([&] {
                  if (comm.rank() == 0)
                    dup.all_reduce(&x, &x, 1, DataType::f32, Op::sum);
                  else
                    dup.barrier();
                }),
                StartsWith("mismatch: "));
    EXPECT_TRUE(dup.failure());
    EXPECT_FALSE(comm.failure());
    EXPECT_EQ(who(comm, comm.rank()), (std::vector{0, 1}));
    auto fresh = comm.dup();
    EXPECT_EQ(who(fresh, comm.rank()), (std::vector{0, 1}));
  });
}

TEST_P(Split, WrongArgumentsAreRefusedBeforeAnythingHappens) {
  on_ranks(2, [](Communicator& comm) {
    EXPECT_THAT(outcome_of([&] { comm.split(-2); }), StartsWith("usage: split: color -2"));
    EXPECT_THAT(outcome_of([&] {
                  comm.subgroup(std::array{0, 2});
                }),
                StartsWith("usage: subgroup: rank 2 does not exist"));
    EXPECT_THAT(outcome_of([&] {
                  comm.subgroup(std::array{1, 1});
                }),
                StartsWith("usage: subgroup: rank 1 is named twice"));
    EXPECT_EQ(who(comm, comm.rank()), (std::vector{0, 1}));
  });
}

TEST_P(Split, DifferentFormsOnDifferentRanksAreAMismatchOnAll) {
  on_ranks(2, [](Communicator& comm) {
    EXPECT_THAT(outcome_of([&] { comm.rank() == 0 ? comm.split(0).reset() : (void)comm.dup(); }),
                AllOf(StartsWith("mismatch: "), HasSubstr("split"), HasSubstr("dup")));
    EXPECT_THAT(outcome_of([&] { comm.subgroup(std::vector(1, comm.rank())); }),
                AllOf(StartsWith("mismatch: "), HasSubstr("with other ranks")));
    EXPECT_EQ(who(comm, comm.rank()), (std::vector{0, 1})) << "nothing has been lost";
  });
}

// Each thread uses its own communicator. Their order differs from rank to rank, as the scheduler
// decides.
TEST_P(Split, ManyCommunicatorsAreUsedByManyThreadsAtOnce) {
  constexpr int kThreads = 6;
  on_ranks(3, [](Communicator& comm) {
    std::vector<Communicator> dups;
    for (int k = 0; k < kThreads; ++k) dups.push_back(comm.dup());
    std::vector<std::thread> threads;
    std::atomic<int> right = 0;
    for (int k = 0; k < kThreads; ++k)
      threads.emplace_back([&, k] {
        std::vector<std::int64_t> data(static_cast<std::size_t>(1 + 5000 * k));
        for (int round = 0; round < 60; ++round) {
          std::fill(data.begin(), data.end(), k);
          if (round % 3 == 0)
            dups[k].all_reduce_async(std::span(data)).wait();
          else
            dups[k].all_reduce(std::span(data));
          right += data.front() == 3 * k && data.back() == 3 * k;
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(right, kThreads * 60);
  });
}

// Each thread makes one communicator after the other from its own, while other threads make theirs.
// Which of them comes first differs from rank to rank.
TEST_P(Split, ThreadsMakeCommunicatorsOfSiblingsAtTheSameTime) {
  constexpr int kThreads = 4, kRounds = 100;
  on_ranks(3, [](Communicator& comm) {
    std::vector<Communicator> siblings;
    for (int k = 0; k < kThreads; ++k) siblings.push_back(comm.dup());
    std::vector<std::string> outcomes(kThreads);
    std::vector<std::thread> threads;
    for (int k = 0; k < kThreads; ++k)
      threads.emplace_back([&, k] {
        outcomes[k] = outcome_of([&] {
          std::optional<Communicator> before;  // It lives until its successor exists.
          for (int round = 0; round < kRounds; ++round) {
            std::optional<Communicator> made = child_of(siblings[k], round);
            if (!made) continue;
            int sum = 1 << 8 * k;
            made->all_reduce(&sum, &sum, 1, DataType::int32, Op::sum);
            if (sum != made->size() << 8 * k)
              throw Error(ErrorKind::internal, "what other ranks gave to another communicator");
            before = std::move(made);
          }
        });
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(outcomes, Each(IsEmpty()));
  });
}

// A communicator that has been destroyed leaves nothing behind, and late messages for it disturb no
// other.
TEST_P(Split, ManyComeAndGo) {
  on_ranks(2, [](Communicator& comm) {
    for (int round = 0; round < 200; ++round) {
      auto dup = comm.dup();
      if (round % 2 == comm.rank()) dup.broadcast(&round, 1, DataType::int32, comm.rank());
      if (round % 2 != comm.rank()) dup.broadcast(&round, 1, DataType::int32, 1 - comm.rank());
    }
    EXPECT_EQ(who(comm, comm.rank()), (std::vector{0, 1}));
  });
}

INSTANTIATE_TEST_SUITE_P(Over, Split, testing::Values("local", "shm", "tcp"));

TEST(SplitMemory, AThousandCommunicatorsOfTwoRanksFitInAQuarterOfAGibibyte) {
  std::atomic<std::size_t> held = 0;
  EXPECT_THAT(run_ranks(2, quick_config("shm"),
                        [&](Communicator& comm) {
                          std::vector<Communicator> dups;
                          std::vector<float> data(300'000, 1);
                          for (int k = 0; k < 1000; ++k) {
                            dups.push_back(comm.dup());
                            const std::size_t count = k % 10 == 0 ? data.size() : 2;
                            dups.back().all_reduce(std::span(data.data(), count));
                          }
                          for (const Communicator& dup : dups) held += dup.memory_bytes();
                          held += comm.memory_bytes();
                        }),
              Each(IsEmpty()));
  EXPECT_LE(held, std::size_t{256} << 20);
  EXPECT_GE(held, std::size_t{1000} * 2 * 4096) << "it is counted";
}

}  // namespace
}  // namespace tutti::test
