// Tests of shrink() after a failure, which makes a new communicator of the same ranks, or of those
// that are alive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <numeric>
#include <set>
#include <utility>

#include "../rendezvous/machines.h"
#include "over_transports.h"
#include "processes.h"
#include "rendezvous/decision.h"
#include "rendezvous/store/file_store.h"
#include "rendezvous/store/memory_store.h"
#include "runtime/membership/regroup.h"
#include "threads.h"

namespace tutti::test {
namespace {

using std::chrono::milliseconds;

void expect(bool what, const char* name) {
  if (!what) throw Error(ErrorKind::internal, name);
}

void sum(Communicator& comm) {
  std::vector<float> data(20'000, 0);
  comm.all_reduce(std::span(data));
}

// Calls all_reduce until it fails, as it must.
void sum_until_it_fails(Communicator& comm) {
  try {
    for (;;) sum(comm);
  } catch (const Error& error) {
    expect(error.kind() == ErrorKind::peer_lost, error.what());
  }
}

// Returns the ranks of `comm`, each by the number that it had at the start.
std::vector<int> who(Communicator& comm, int own) {
  std::vector<int> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::span<const int>(&own, 1), std::span(all));
  return all;
}

class Shrink : public OverTransports {
 protected:
  Communicator join(int rank, int size, const std::string& store = "auto") const {
    set_environment(rank, size, port_);
    Config config = quick_config(transport_);
    config.store = store;
    return Communicator::from_env(config);
  }
};

// Long enough for two ranks that begin to shrink at about the same time, on a busy machine.
constexpr std::chrono::seconds kPatience{2};

// In each round the last of the survivors is killed, until two are left.
TEST_F(Shrink, RanksThatAreKilledOneByOneLeaveTheOthersTogether) {
  over(kBoth, [&] {
    constexpr int kRanks = 5;
    Processes ranks(kRanks, [&](int rank) {
      Communicator comm = join(rank, kRanks);
      for (int left = kRanks - 1; left >= 2; --left) {
        if (rank == left) {
          // All other ranks take part and therefore need nothing more of this rank for earlier
          // calls.
          sum(comm);
          raise(SIGKILL);
        }
        sum_until_it_fails(comm);
        comm = comm.shrink();
        std::vector<int> expected(static_cast<std::size_t>(left));
        std::iota(expected.begin(), expected.end(), 0);
        expect(who(comm, rank) == expected, "who is left");
      }
      comm.barrier();
    });
    for (const int rank : {0, 1}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
    for (const int rank : {2, 3, 4}) EXPECT_EQ(ranks.outcome(rank), "ended by signal 9");
  });
}

TEST_F(Shrink, KeepsTheOrderOfThoseThatAreLeft) {
  over(kBoth, [&] {
    Processes ranks(5, [&](int rank) {
      Communicator comm = join(rank, 5);
      if (rank == 1 || rank == 3) raise(SIGKILL);
      sum_until_it_fails(comm);
      Communicator left = comm.shrink();
      comm = std::move(left);
      expect(who(comm, rank) == std::vector<int>{0, 2, 4}, "who is left");
    });
    for (const int rank : {0, 2, 4}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

// Returns the names of this process's sockets, which the kernel numbers.
std::set<std::string> sockets() {
  std::set<std::string> found;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string what = std::filesystem::read_symlink(file.path(), gone).string();
    if (what.starts_with("socket:")) found.insert(what);
  }
  return found;
}

std::ptrdiff_t thread_count() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

TEST_F(Shrink, KeepsTheConnectionsAndThreadsThatThereAre) {
  over(kBoth, [&] {
    Processes ranks(4, [&](int rank) {
      Communicator comm = join(rank, 4);
      sum(comm);
      const std::set<std::string> before = sockets();
      const std::ptrdiff_t threads = thread_count();
      comm.barrier();
      if (rank == 2) raise(SIGKILL);
      sum_until_it_fails(comm);
      Communicator again = comm.shrink();
      sum(again);
      expect(std::ranges::includes(before, sockets()), "another socket");
      expect(thread_count() <= threads, "another thread");
      comm = std::move(again);
      comm.abort("the program's own reason");
      again = comm.shrink();
      expect(who(again, rank) == std::vector<int>{0, 1, 3}, "who is left");
      expect(std::ranges::includes(before, sockets()), "another socket after the second time");
      again.barrier();
    });
    for (const int rank : {0, 1, 3}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

// Communicators that are split off, of which a process has many, get smaller rings than the first,
// and ranks that share a core get smaller ones, too.
TEST_F(Shrink, HasTheRingsOfANewJobHoweverManyAreSplitOff) {
  over({"shm"}, [&] {
    int sizes[2];
    ASSERT_EQ(pipe(sizes), 0);
    const auto tell = [&](int rank, Communicator& comm) {
      sum(comm);
      const std::size_t bytes = comm.memory_bytes();
      if (rank == 0) expect(write(sizes[1], &bytes, sizeof bytes) == sizeof bytes, "a pipe");
      comm.barrier();
    };
    Processes small(2, [&](int rank) {
      Communicator comm = join(rank, 2);
      tell(rank, comm);
    });
    for (const int rank : {0, 1}) EXPECT_THAT(small.outcome(rank), IsEmpty());
    port_ = unused_port();
    Processes large(5, [&](int rank) {
      Communicator comm = join(rank, 5);
      std::vector<Communicator> parts;
      for (int part = 0; part < 12; ++part) parts.push_back(comm.dup());
      if (rank >= 2) raise(SIGKILL);
      sum_until_it_fails(comm);
      Communicator left = comm.shrink();
      tell(rank, left);
    });
    for (const int rank : {0, 1}) EXPECT_THAT(large.outcome(rank), IsEmpty());
    std::size_t expected = 0, bytes = 0;
    ASSERT_EQ(::read(sizes[0], &expected, sizeof expected), sizeof expected);
    ASSERT_EQ(::read(sizes[0], &bytes, sizeof bytes), sizeof bytes);
    EXPECT_EQ(bytes, expected);
    for (const int end : sizes) close(end);
  });
}

TEST_F(Shrink, AfterAFailureInWhichNobodyEndedHasTheSameRanks) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      Communicator comm = join(rank, 3);
      if (rank == 1) comm.abort("the program's own reason");
      sum_until_it_fails(comm);
      Communicator again = comm.shrink();
      expect(who(again, rank) == std::vector<int>{0, 1, 2}, "the same ranks");
      expect(comm.failure().has_value(), "the old one stays as it is");
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

// Each rank has a call under way that does not end, and comes a little later than the last one.
TEST_F(Shrink, WithCallsUnderWayThatDoNotEndHasAllRanks) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      Communicator comm = join(rank, 3);
      comm.barrier();
      int never = 0;
      Work work = comm.recv_async(std::span(&never, 1), (rank + 1) % 3, 1);
      std::this_thread::sleep_for(milliseconds(20 * rank));
      Communicator left = comm.shrink(kPatience);
      expect(left.size() == 3, "a rank was left out");
      left.barrier();
      expect(outcome_of([&] { work.wait(); }).starts_with("peer_lost"), "the call has failed");
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty()) << rank;
  });
}

TEST_F(Shrink, GoesOnWithoutAFrozenRankWhenPatienceHasRunOutWhichIsToldSoLater) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      Communicator comm = join(rank, 3);
      if (rank == 2) raise(SIGSTOP);
      if (rank == 1) comm.abort("rank 2 is frozen");
      sum_until_it_fails(comm);
      Communicator again = comm.shrink(kPatience);
      expect(who(again, rank) == std::vector<int>{0, 1}, "without the frozen one");
      again.barrier();
    });
    // Rank 0 keeps the store until the late rank has left it. The test continues that rank once the
    // others have ended.
    EXPECT_THAT(ranks.outcome(1), IsEmpty());
    ranks.signal(2, SIGCONT);
    EXPECT_THAT(ranks.outcome(2), AllOf(StartsWith("timeout"), HasSubstr("without this rank")));
    EXPECT_THAT(ranks.outcome(0), IsEmpty());
  });
}

TEST_F(Shrink, ARankThatWasLeftOutOnceGetsTheSameErrorForEverAndNoGroupOfItsOwn) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      Communicator comm = join(rank, 3);
      if (rank == 2) raise(SIGSTOP);
      if (rank == 1) comm.abort("rank 2 is frozen");
      sum_until_it_fails(comm);
      if (rank != 2) return comm.shrink(kPatience).barrier();
      const std::string first = outcome_of([&] { comm.shrink(); });
      expect(first.find("without this rank") != std::string::npos, first.c_str());
      for (int again = 0; again < 3; ++again)
        expect(outcome_of([&] { comm.shrink(milliseconds(10)); }) == first, "another outcome");
    });
    EXPECT_THAT(ranks.outcome(1), IsEmpty());
    ranks.signal(2, SIGCONT);
    EXPECT_THAT(ranks.outcome(2), IsEmpty());
    EXPECT_THAT(ranks.outcome(0), IsEmpty());
  });
}

// A rank that has lost what shrink() gave it, by an interrupt of Python or for want of memory,
// became a second group beside the others.
TEST_F(Shrink, OnceItHasMadeACommunicatorNeedsAllOfItsRanksAgain) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      Communicator comm = join(rank, 3);
      expect(who(*std::make_unique<Communicator>(comm.shrink()), rank).size() == 3, "all");
      Communicator next = comm.shrink();
      expect(who(next, rank) == std::vector<int>{0, 1, 2}, "all again");
      if (rank == 1) {
        { const Communicator lost = std::move(next); }
        const std::string why = outcome_of([&] { comm.shrink(milliseconds(300)); });
        expect(why.find("a new communicator has been made of this one") != why.npos, why.c_str());
        return;
      }
      sum_until_it_fails(next);
      next = next.shrink();
      expect(who(next, rank) == std::vector<int>{0, 2}, "who is left");
    });
    for (const int rank : {0, 1, 2}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

// Forwards to another store, and sends the rank a signal when it begins to join the new
// communicator.
class EndsInTheJoin final : public Store {
 public:
  EndsInTheJoin(std::shared_ptr<Store> store, int signal)
      : store_(std::move(store)), signal_(signal) {}

  void set(std::string_view key, std::string_view value, Deadline deadline) override {
    store_->set(key, value, deadline);
  }
  std::string get(std::string_view key, Deadline deadline) override {
    return store_->get(key, deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override {
    if (key.starts_with("tutti/again/")) raise(std::exchange(signal_, 0));
    return store_->add(key, amount, deadline);
  }
  void wait(std::string_view key, Deadline deadline) override { store_->wait(key, deadline); }

 private:
  const std::shared_ptr<Store> store_;
  int signal_;
};

/// Rank 2 of three gets `signal` while it joins the others' new communicator. The start-up timeout
/// is that of a job, which is far longer than the others' patience.
class ShrinkInWhichARankEnds : public Shrink {
 protected:
  Communicator join(int rank, int signal) const {
    Config config = quick_config(transport_);
    config.startup_timeout = std::chrono::minutes(5);
    std::shared_ptr<Store> store = std::make_shared<FileStore>(
        path_, rank, 3, std::chrono::steady_clock::now() + std::chrono::seconds(20));
    if (rank == 2) store = std::make_shared<EndsInTheJoin>(store, signal);
    return Communicator::create(store, rank, 3, config);
  }
  void over(const std::vector<const char*>& transports, const std::function<void()>& body) {
    OverTransports::over(transports, [&] {
      path_ = testing::TempDir() + "shrink-join-" + std::to_string(getpid());
      body();
      unlink(path_.c_str());
    });
  }

  std::string path_;
};

TEST_F(ShrinkInWhichARankEnds, BeginsAgainWithoutIt) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      Communicator comm = join(rank, SIGKILL);
      if (rank == 1) comm.abort("the program's own reason");
      sum_until_it_fails(comm);
      Communicator again = comm.shrink(std::chrono::seconds(20));
      expect(who(again, rank) == std::vector<int>{0, 1}, "who is left");
      again.barrier();
    });
    EXPECT_EQ(ranks.outcome(2), "ended by signal 9");
    for (const int rank : {0, 1}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(ShrinkInWhichARankEnds, EndsWithItsPatienceWhereThatIsFrozenAndLeavesItOutTheNextTime) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      Communicator comm = join(rank, SIGSTOP);
      if (rank == 1) comm.abort("the program's own reason");
      sum_until_it_fails(comm);
      const std::string first = outcome_of([&] { comm.shrink(kPatience); });
      if (rank == 2) {
        expect(!first.empty(), "it was left in");
        const std::string second = outcome_of([&] { comm.shrink(kPatience); });
        expect(second.find("without this rank") != std::string::npos, second.c_str());
        return;
      }
      expect(first.find("not all could join") != std::string::npos, first.c_str());
      Communicator again = comm.shrink(kPatience);
      expect(who(again, rank) == std::vector<int>{0, 1}, "without the frozen one");
      again.barrier();
    });
    for (const int rank : {0, 1}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
    ranks.signal(2, SIGCONT);
    EXPECT_THAT(ranks.outcome(2), IsEmpty());
  });
}

TEST_F(Shrink, WithoutRank0GoesOnOverAStoreInAFile) {
  over(kBoth, [&] {
    const std::string path = testing::TempDir() + "shrink-" + std::to_string(getpid());
    Processes ranks(3, [&](int rank) {
      Communicator comm = join(rank, 3, "file://" + path);
      if (rank == 0) raise(SIGKILL);
      sum_until_it_fails(comm);
      Communicator again = comm.shrink();
      expect(who(again, rank) == std::vector<int>{1, 2}, "without rank 0");
    });
    for (const int rank : {1, 2}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
    unlink(path.c_str());
  });
}

TEST(ShrinkAcrossMachines, ARankThatIsKilledLeavesTheOthersOfBothTogether) {
  const Machines machines;
  if (!machines.made()) GTEST_SKIP() << Machines::kMissing;
  const int port = unused_port();
  Processes ranks(4, [&](int rank) {
    machines.enter(rank < 2 ? "a" : "b");
    set_environment(rank, 4, port);
    setenv("MASTER_ADDR", "10.77.0.1", 1);
    Config config = quick_config();
    config.secret = "of the two machines' job";
    Communicator comm = Communicator::from_env(config);
    if (rank == 2) raise(SIGKILL);
    sum_until_it_fails(comm);
    Communicator again = comm.shrink();
    expect(who(again, rank) == std::vector<int>{0, 1, 3}, "who is left");
  });
  for (const int rank : {0, 1, 3}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
}

TEST(ShrinkOfAPart, IsUsageThatSaysWhatToDo) {
  const auto outcomes = run_ranks(2, quick_config("shm"), [](Communicator& comm) {
    Communicator second = comm.dup();
    static_cast<void>(second.shrink());
  });
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("usage"), HasSubstr("shrink the one"))));
}

TEST(ShrinkOverADamagedStore, IsCorruptWhereTheMembersCannotBeRanks) {
  const TimePoint now = std::chrono::steady_clock::now();
  for (const char* const members : {"again/1 0 2 +", "again/1 -1 0 +", "again/1 1 0 +", "again/1 +",
                                    "again/1 0", "again/1 0 + x", "again/1 0 + 2 1"}) {
    const auto store = std::make_shared<MemoryStore>();
    Decision(*store, "shrink/0/members").propose(members, now);
    Regrouping shrinking(store, "shrink", 0, 2, "shrink");
    shrinking.begin(now, milliseconds(1000), {});
    EXPECT_THAT(outcome_of([&] { shrinking.step(now, [] { return std::vector<bool>(2); }, {}); }),
                AllOf(StartsWith("corrupt"), HasSubstr(members)));
  }
}

}  // namespace
}  // namespace tutti::test
