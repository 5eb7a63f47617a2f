// Tests of communicators that are split off others: their members, and their independence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <numeric>

#include "processes.h"
#include "runtime/communicator_impl.h"
#include "runtime/membership/split.h"
#include "signs.h"
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
    EXPECT_THAT(data, AllAre(6.0F));
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
// What ranks tell each other of a split is as long as these blocks.
TEST_P(Split, IsNoAllGatherOfTheProgram) {
  on_ranks(2, [](Communicator& comm) {
    std::vector<std::uint8_t> own(sizeof(SplitCard), 7), all(2 * own.size());
    const std::string why = outcome_of([&] {
      if (comm.rank() == 0)
        comm.split(0);
      else
        comm.all_gather(own.data(), all.data(), own.size(), DataType::uint8);
    });
    EXPECT_THAT(why, AllOf(StartsWith("mismatch: "), HasSubstr(" split"),
                           HasSubstr("all_gather(32 x uint8)")));
    EXPECT_EQ(std::count(all.begin(), all.begin() + sizeof(SplitCard), 0), sizeof(SplitCard))
        << "what rank 0 says of its split";
  });
}

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

constexpr int kForms = 3;  // those of child_of()

// Gives this rank's card for child_of(comm, form), as a rank that then makes no part of the new
// communicator.
void give_card(Communicator& comm, int form) {
  CommunicatorImpl& inside = CommunicatorImpl::of(comm);
  std::vector<int> but_last(static_cast<std::size_t>(comm.size() - 1));
  std::iota(but_last.begin(), but_last.end(), 0);
  const SplitCard card = form == 0   ? dup_card()
                         : form == 1 ? split_card(comm.rank() % 2, 0)
                                     : subgroup_card(but_last, comm.rank(), comm.size());
  Splitting splitting(inside.parts(), card);
  inside.call(splitting.exchange());
}

// Returns once this rank's all_gather of the cards, its first call, has ended.
void await_cards(Communicator& comm) {
  const StatusPage& page = CommunicatorImpl::of(comm).parts().transport->own_status_page();
  while (page.completed.load() == 0) std::this_thread::yield();
}

// The number of descriptors that this process has open.
std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

// There are 5 ranks. Rank 2 makes no part of the new communicator, and rank 0, which waits for it,
// aborts.
TEST_P(Split, AnAbortEndsItOnAllRanksThatWaitForAMember) {
  const std::ptrdiff_t before = open_descriptors();
  for (int form = 0; form < kForms; ++form) {
    Sign ended;
    on_ranks(5, [&](Communicator& comm) {
      if (comm.rank() == 2) {
        give_card(comm, form);
        return ended.wait(form == 1 ? 2 : form == 2 ? 3 : 4);
      }
      const bool with_rank_2 = form == 0 || (form == 1 ? comm.rank() % 2 == 0 : comm.rank() < 4);
      std::optional<std::thread> other;
      if (comm.rank() == 0)
        other.emplace([&] {
          await_cards(comm);
          comm.abort("enough");
        });
      const std::string outcome = outcome_of([&] { child_of(comm, form); });
      if (other) other->join();
      if (!with_rank_2) return;
      ended.give();
      EXPECT_THAT(outcome,
                  AllOf(StartsWith(comm.rank() == 0 ? "peer_lost: rank 0 aborted" : "peer_lost: "),
                        HasSubstr("rank 0 aborted the communicator: enough")));
      EXPECT_TRUE(comm.failure());
    });
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_P(Split, AMemberThatCannotMakeItsPartEndsItOnTheOthersWithItsError) {
  Sign ended;
  on_ranks(3, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      give_card(comm, 0);
      CommunicatorImpl::of(comm).failure().set(Error(ErrorKind::unavailable, "no memory here"));
      return ended.wait(2);
    }
    EXPECT_THAT(outcome_of([&] { comm.dup(); }),
                AllOf(StartsWith("unavailable: "), HasSubstr("of 3: dup: "),
                      HasSubstr("rank 1 has failed and reports: no memory here")));
    ended.give();
  });
}

INSTANTIATE_TEST_SUITE_P(Over, Split, testing::Values("local", "shm", "tcp"));

class SplitOfProcesses : public testing::TestWithParam<const char*> {
 protected:
  Communicator join(int rank, int size) const {
    set_environment(rank, size, port_);
    return Communicator::from_env(quick_config(GetParam()));
  }
  const int port_ = unused_port();
};

// Rank 1 is frozen, and rank 2 is killed, both after they gave their cards.
TEST_P(SplitOfProcesses, AMemberThatIsKilledEndsItOnTheOthersWhomeverElseTheyWaitFor) {
  Sign ended;
  Processes ranks(4, [&](int rank) {
    Communicator comm = join(rank, 4);
    if (rank == 1 || rank == 2) {
      give_card(comm, 0);
      raise(rank == 1 ? SIGSTOP : SIGKILL);
    }
    const std::string outcome = outcome_of([&] { comm.dup(); });
    ended.give();
    throw std::runtime_error(outcome);
  });
  EXPECT_EQ(ranks.outcome(2), "ended by signal 9");
  ended.wait(2);
  ranks.signal(1, SIGKILL);  // Otherwise rank 0's store would wait some seconds for it to leave.
  for (const int rank : {0, 3})
    EXPECT_THAT(ranks.outcome(rank),
                AllOf(StartsWith("exception: peer_lost: "), HasSubstr("rank 2 is lost")));
}

INSTANTIATE_TEST_SUITE_P(Over, SplitOfProcesses, testing::Values("shm", "tcp"));

// The second dup() of rank 1 needs descriptors for the memory of its status page.
TEST(SplitWithoutDescriptors, EndsOnAllRanksWithTheErrorOfTheOneThatHasNone) {
  const int port = unused_port();
  Processes ranks(3, [&](int rank) {
    set_environment(rank, 3, port);
    Communicator comm = Communicator::from_env(quick_config("shm"));
    const Communicator first = comm.dup();
    if (rank == 1) {
      const int next = dup(0);
      close(next);
      rlimit limit{};
      getrlimit(RLIMIT_NOFILE, &limit);
      limit.rlim_cur = static_cast<rlim_t>(next);
      setrlimit(RLIMIT_NOFILE, &limit);
    }
    comm.dup();
  });
  const std::string outcome = ranks.outcome(1);
  EXPECT_THAT(outcome, StartsWith("unavailable: "));
  for (const int rank : {0, 2})
    EXPECT_THAT(ranks.outcome(rank),
                AllOf(StartsWith("unavailable: "), HasSubstr("rank 1 has failed and reports: ")));
}

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
