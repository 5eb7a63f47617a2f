// Tests of grow() and join(): newcomers come to a running job, with ranks as processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <utility>

#include "common/random.h"
#include "growing_job.h"
#include "processes.h"
#include "rendezvous/store/file_store.h"
#include "signs.h"
#include "threads.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

using Grow = GrowingJob;
TEST_F(Grow, AJobOfOneRankGrowsByAFileStoreAndElseSaysThatItCannot) {
  over(kBoth, [&] {
    Processes ranks(2, [&](int rank) {
      if (rank == 1) return expect(come(file_).size() == 2, "a newcomer beside one rank");
      Communicator alone = start(0, 1);
      const std::string said = outcome_of([&] { static_cast<void>(alone.grow(1, 20s)); });
      expect(said.starts_with("usage: grow: this job was started with one rank"), said);
      expect(start(0, 1, file_).grow(1, 20s).size() == 2, "one rank beside a newcomer");
    });
    for (const int rank : {0, 1}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Grow, TakesNewcomersInBehindTheOldRanks) {
  over(kBoth, [&] {
    Processes ranks(4, [&](int rank) {
      if (rank < 2) {
        Communicator comm = start(rank, 2);
        Communicator grown = comm.grow(2, 20s);
        expect(grown.rank() == rank, "old ranks keep their order");
        const std::vector<int> all = who(grown, rank);
        expect(all.size() == 4 && all[0] == 0 && all[1] == 1, "all four");
        comm.barrier();  // the old one can be used still
        grown.barrier();
      } else {
        Communicator grown = come();
        expect(grown.rank() >= 2 && grown.size() == 4, "a newcomer's place");
        who(grown, rank);
        grown.barrier();
      }
    });
    for (int rank = 0; rank < 4; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Grow, AfterAShrinkReplacesARankThatWasKilledAndTheNewOneCanShrinkAndGrowAgain) {
  over(kBoth, [&] {
    Processes ranks(4, [&](int rank) {
      if (rank == 3) {
        Communicator comm = come();
        expect(who(comm, rank) == std::vector<int>{0, 1, 3}, "as the last");
        raise(SIGKILL);
      }
      Communicator comm = start(rank, 3);
      comm.barrier();
      if (rank == 2) raise(SIGKILL);
      fail(comm);
      comm = comm.shrink(20s);
      comm = comm.grow(1, 20s);
      expect(who(comm, rank) == std::vector<int>{0, 1, 3}, "with a newcomer");
      fail(comm);
      comm = comm.shrink(20s);
      expect(who(comm, rank) == std::vector<int>{0, 1}, "without it");
      expect(comm.agree(3).flags == 3, "and it can agree");
    });
    for (const int rank : {0, 1}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Grow, OverAStoreThatOutlivesItReplacesRank0) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      if (rank == 2) {
        Communicator comm = come(file_);
        expect(who(comm, rank) == std::vector<int>{1, 2}, "as the last");
        return comm.barrier();
      }
      Communicator comm = start(rank, 2, file_);
      comm.barrier();
      if (rank == 0) raise(SIGKILL);
      fail(comm);
      comm = comm.shrink(20s).grow(1, 20s);
      expect(who(comm, rank) == std::vector<int>{1, 2}, "with a newcomer");
      comm.barrier();
    });
    for (const int rank : {1, 2}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Grow, InVainIsATimeoutOnAllAndTheCommunicatorCanGrowLater) {
  over(kBoth, [&] {
    Sign failed;
    Processes ranks(3, [&](int rank) {
      if (rank == 2) {
        failed.wait(2);
        return come().barrier();
      }
      Communicator comm = start(rank, 2);
      const std::string why = outcome_of([&] { comm.grow(1, 300ms); });
      expect(why.starts_with("timeout") && why.find("0 of 1 newcomers") != std::string::npos, why);
      comm.barrier();
      failed.give();
      comm.grow(1, 20s).barrier();
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Grow, InVainNamesTheRanksThatHaveNotCalledIt) {
  over(kBoth, [&] {
    Sign failed;
    Processes ranks(3, [&](int rank) {
      Communicator comm = start(rank, 3);
      if (rank == 1) return failed.wait(2);
      const std::string why = outcome_of([&] { comm.grow(1, 300ms); });
      expect(why.find("2 of the 3 ranks called grow(), not rank 1,") != std::string::npos, why);
      failed.give();
      failed.wait(2);  // The other one is not to be told that this rank has ended.
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Grow, ANewcomerForWhomNobodyGrowsIsToldWhatItWaitedFor) {
  over(kBoth, [&] {
    Sign over, failed;
    Processes ranks(3, [&](int rank) {
      if (rank < 2) {
        Communicator comm = start(rank, 2);
        over.wait();
        // It waits no more, so it is not taken in.
        const std::string why = outcome_of([&] { comm.grow(1, 300ms); });
        expect(why.find("0 of 1 newcomers") != std::string::npos, why);
        failed.give();
        return failed.wait(2);  // The other one is not to be told that this rank has ended.
      }
      set_newcomers_environment();
      Config short_one = config();
      short_one.startup_timeout = 1s;
      const std::string why = outcome_of([&] { Communicator::join(short_one); });
      over.give();
      expect(why.starts_with("timeout") && why.find("Communicator::grow()") != std::string::npos,
             why);
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Grow, WithoutAJobIsATimeoutAndWithoutAnAddressUsage) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      set_newcomers_environment();
      Config short_one = config(rank == 1 ? file_ : "auto");
      short_one.startup_timeout = 200ms;
      if (rank == 2) unsetenv("MASTER_PORT");
      Communicator::join(short_one);
    });
    EXPECT_THAT(ranks.outcome(0), AllOf(StartsWith("timeout: a newcomer could not join the store"),
                                        HasSubstr("nobody listens")));
    EXPECT_THAT(ranks.outcome(1), AllOf(StartsWith("timeout: a newcomer found no store")));
    EXPECT_THAT(ranks.outcome(2), AllOf(StartsWith("usage: MASTER_PORT is not set"),
                                        HasSubstr("comes to a running job")));
  });
}

TEST_F(Grow, OtherSettingsAreAMismatchOnAllAsAtTheStart) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      Config other = config();
      other.algorithm = "ring";
      std::string why;
      if (rank == 2) {
        set_newcomers_environment();
        why = outcome_of([&] { Communicator::join(other); });
      } else {
        Communicator comm = start(rank, 2);
        why = outcome_of([&] { comm.grow(1, 20s); });
        comm.barrier();
      }
      expect(why.starts_with("mismatch") && why.find("ring there") != std::string::npos, why);
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Grow, RanksThatNameDifferentNumbersGetAMismatch) {
  over(kBoth, [&] {
    Processes ranks(2, [&](int rank) {
      Communicator comm = start(rank, 2);
      const std::string why = outcome_of([&] { comm.grow(1 + rank, 5s); });
      expect(why.starts_with("mismatch") && why.find("newcomers") != std::string::npos, why);
      comm.barrier();
    });
    for (int rank = 0; rank < 2; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Grow, OfARankThatHasEndedIsToldToShrinkFirst) {
  over(kBoth, [&] {
    Processes ranks(2, [&](int rank) {
      Communicator comm = start(rank, 2);
      comm.barrier();
      if (rank == 1) raise(SIGKILL);
      fail(comm);
      const std::string why = outcome_of([&] { comm.grow(1, 60s); });
      expect(why.starts_with("peer_lost"), why);
    });
    EXPECT_THAT(ranks.outcome(0), IsEmpty());
  });
}

TEST_F(Grow, OverTheNetworkAWrongSecretIsRefusedAsAtTheStart) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      Config network = config("tcp://127.0.0.1:" + std::to_string(port_));
      network.secret = "the right secret of this job";
      if (rank < 2) {
        set_environment(rank, 2, port_);
        Communicator comm = Communicator::from_env(network);
        return comm.grow(1, 20s).barrier();
      }
      set_newcomers_environment();
      Config wrong = network;
      wrong.secret = "a wrong secret, of another job";
      const std::string why = outcome_of([&] { Communicator::join(wrong); });
      expect(why.starts_with("mismatch: a newcomer") && why.find("secret") != std::string::npos,
             why);
      Communicator::join(network).barrier();
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Grow, ANewcomerThatWasKilledWhileItWaitedIsNotTakenIn) {
  over(kBoth, [&] {
    Sign waits, killed;
    Processes ranks(4, [&](int rank) {
      if (rank == 2) {
        waits.give();
        return static_cast<void>(come());
      }
      if (rank == 3) {
        killed.wait();
        return come().barrier();
      }
      Communicator comm = start(rank, 2);
      killed.wait();
      comm.grow(1, 20s).barrier();
    });
    waits.wait();
    wait_until_asleep(ranks.pid(2));
    ranks.signal(2, SIGKILL);
    EXPECT_EQ(ranks.outcome(2), "ended by signal 9");
    killed.give();
    for (const int rank : {0, 1, 3}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

// Forwards to another store, and kills the process at its n-th request.
class Killing final : public Store {
 public:
  Killing(std::shared_ptr<Store> store, int requests) : store_(std::move(store)), left_(requests) {}

  void set(std::string_view key, std::string_view value, Deadline deadline) override {
    count();
    store_->set(key, value, deadline);
  }
  std::string get(std::string_view key, Deadline deadline) override {
    count();
    return store_->get(key, deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override {
    count();
    return store_->add(key, amount, deadline);
  }
  void wait(std::string_view key, Deadline deadline) override {
    count();
    store_->wait(key, deadline);
  }

 private:
  void count() {
    if (left_-- == 0) raise(SIGKILL);
  }
  const std::shared_ptr<Store> store_;
  int left_;
};

// A newcomer is killed at one of its requests, each time at a later one, until it lives to the end.
// The ranks take in another one in its place; where the first had joined, they shrink before.
TEST_F(Grow, ANewcomerThatIsKilledAtAnyPointLeavesTheRanksTogetherWithAnother) {
  over(kBoth, [&] {
    int died = 0;
    for (int requests = 3;; requests += 3) {
      SCOPED_TRACE(requests);
      unlink(path_.c_str());
      Sign first_ended;
      Processes ranks(4, [&](int rank) {
        if (rank < 2) {
          Communicator comm = start(rank, 2, file_);
          for (;;) {
            Communicator grown = comm.grow(1, 6s);
            std::vector<int> all;
            const bool whole = outcome_of([&] { all = who(grown, rank); }).empty();
            if (comm.agree(whole ? 1 : 0, 20s).flags == 1)
              return expect(all.size() == 3 && all[0] == 0 && all[1] == 1, "one newcomer");
            comm = grown.shrink(20s);
          }
        }
        set_newcomers_environment();
        if (rank == 3) first_ended.wait();
        std::shared_ptr<Store> store =
            std::make_shared<FileStore>(path_, std::chrono::steady_clock::now() + 20s);
        if (rank == 2) store = std::make_shared<Killing>(store, requests);
        Communicator comm = Communicator::join(store, config());
        who(comm, rank);
      });
      const std::string first = ranks.outcome(2);
      if (first.empty()) break;
      EXPECT_EQ(first, "ended by signal 9");
      ++died;
      first_ended.give();
      for (const int rank : {0, 1, 3}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
    }
    EXPECT_GT(died, 2);
  });
}

// Any rank but the last is killed at any of its requests to the store, most of which belong to an
// agree() or a shrink(). Those that live go on together, and all take the same way each time.
TEST_F(Grow, RanksThatAreKilledAtAnyPointLeaveTheOthersWithOneOutcome) {
  over(kBoth, [&] {
    constexpr int kRanks = 5, kTurns = 8;
    const auto shared_memory = [] {
      const std::filesystem::directory_iterator all("/dev/shm");
      return std::count_if(begin(all), end(all), [](const auto& entry) {
        return entry.path().filename().string().find("tutti") != std::string::npos;
      });
    };
    const auto before = shared_memory();
    int died = 0;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE(seed);
      unlink(path_.c_str());
      Processes ranks(kRanks, [&](int rank) {
        SeededRandom random(seed * kRanks + static_cast<std::uint64_t>(rank));
        std::shared_ptr<Store> store = std::make_shared<FileStore>(
            path_, rank, kRanks, std::chrono::steady_clock::now() + 20s);
        if (rank + 1 < kRanks)
          store = std::make_shared<Killing>(store, 15 + static_cast<int>(random.next() % 300));
        Communicator comm = Communicator::create(store, rank, kRanks, config());
        for (int turn = 0; turn < kTurns; ++turn) {
          const bool whole = outcome_of([&] { comm.barrier(); }).empty();
          const Agreement agreed = comm.agree(whole ? 1 : 0, 20s);
          if (agreed.flags == 0 || !agreed.absent.empty()) comm = comm.shrink(20s);
          expect(comm.size() >= 1, "the last is left");
        }
      });
      for (int rank = 0; rank < kRanks; ++rank) {
        const std::string outcome = ranks.outcome(rank);
        died += outcome == "ended by signal 9" ? 1 : 0;
        EXPECT_THAT(outcome, AnyOf(IsEmpty(), "ended by signal 9")) << "rank " << rank;
        EXPECT_TRUE(rank + 1 < kRanks || outcome.empty()) << "it was killed";
      }
    }
    EXPECT_GT(died, 5);
    EXPECT_EQ(shared_memory(), before);
  });
}

}  // namespace
}  // namespace tutti::test
