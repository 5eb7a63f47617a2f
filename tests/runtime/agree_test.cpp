// Tests of agree(), of a shrink() that demands a least number of ranks, and of abort() where it
// revokes a communicator, with ranks as processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "over_transports.h"
#include "processes.h"
#include "signs.h"
#include "threads.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

void expect(bool what, const std::string& name) {
  if (!what) throw Error(ErrorKind::internal, name);
}

class Agree : public OverTransports {
 protected:
  Communicator join(int rank, int size) const {
    set_environment(rank, size, port_);
    return Communicator::from_env(quick_config(transport_));
  }
};

TEST_F(Agree, IsTheAndOfAllFlagsAgainAndAgain) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      Communicator comm = join(rank, 3);
      for (std::uint64_t bit = 0; bit < 64; ++bit) {
        const std::uint64_t common = std::uint64_t{1} << bit;
        const Agreement agreed = comm.agree(
            common | (std::uint64_t{1} << ((bit + 1 + static_cast<unsigned>(rank)) % 64)));
        expect(agreed.flags == common && agreed.absent.empty(), "the common bit");
      }
      expect(comm.agree(0).flags == 0, "nothing in common");
      comm.barrier();
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Agree, AfterAFailureNamesTheRanksThatAreGoneAtOnce) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      Communicator comm = join(rank, 3);
      comm.barrier();
      if (rank == 1) raise(SIGKILL);
      const std::string failure = outcome_of([&] {
        for (;;) comm.barrier();
      });
      expect(failure.starts_with("peer_lost"), failure);
      const auto began = std::chrono::steady_clock::now();
      const Agreement agreed = comm.agree(rank == 0 ? 6 : 3, 60s);
      expect(agreed.flags == 2 && agreed.absent == std::vector<int>{1}, "the two that are left");
      expect(std::chrono::steady_clock::now() - began < 30s,
             "nobody waits for a rank that has ended");
      expect(comm.failure().has_value(), "the communicator stays failed");
    });
    for (const int rank : {0, 2}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Agree, LeavesOutAFrozenRankWhichGetsTheSameResultLater) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      Communicator comm = join(rank, 3);
      comm.barrier();
      if (rank == 2) raise(SIGSTOP);
      const Agreement agreed = comm.agree(rank == 2 ? 1 : 5, 500ms);
      expect(agreed.flags == 5 && agreed.absent == std::vector<int>{2}, "the frozen one is absent");
    });
    EXPECT_THAT(ranks.outcome(1), IsEmpty());
    ranks.signal(2, SIGCONT);
    for (const int rank : {0, 2}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Agree, OfAPartOrWithAWrongPatienceIsUsage) {
  over(kBoth, [&] {
    const auto outcomes = run_ranks(2, quick_config(transport_), [](Communicator& comm) {
      Communicator part = comm.dup();
      const std::string split = outcome_of([&] { static_cast<void>(part.agree(1)); });
      expect(split.starts_with("usage") && split.find("agree the one") != std::string::npos, split);
      const std::string patience = outcome_of([&] { static_cast<void>(comm.agree(1, -1ms)); });
      expect(patience.starts_with("usage"), patience);
      for (const int least : {0, 3}) {
        const std::string demand = outcome_of([&] { static_cast<void>(comm.shrink(1s, least)); });
        expect(demand.starts_with("usage: shrink: at least"), demand);
      }
      expect(comm.agree(3).flags == 3, "it can be used still");
    });
    EXPECT_THAT(outcomes, Each(IsEmpty()));
  });
}

using Quorum = Agree;
TEST_F(Quorum, FewerRanksThanItDoNotGoOnAndMayCallAgain) {
  over(kBoth, [&] {
    Processes ranks(4, [&](int rank) {
      Communicator comm = join(rank, 4);
      comm.barrier();
      if (rank >= 2) raise(SIGKILL);
      const std::string failure = outcome_of([&] {
        for (;;) comm.barrier();
      });
      expect(failure.starts_with("peer_lost"), failure);
      // One of the two demands three, and both obey.
      const std::string few = outcome_of([&] { comm.shrink(500ms, rank == 0 ? 3 : 1); });
      expect(few.starts_with("timeout") && few.find("only the ranks 0 1") != std::string::npos,
             few);
      Communicator two = comm.shrink(5s, 2);
      expect(two.size() == 2, "they go on when both are content");
      two.barrier();
    });
    for (const int rank : {0, 1}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Quorum, RanksThatAreLeftOutAreNotWaitedForAndGetNoGroup) {
  over(kBoth, [&] {
    Processes ranks(4, [&](int rank) {
      Communicator comm = join(rank, 4);
      comm.barrier();
      const int out[] = {1}, twice[] = {1, 1}, nobody[] = {4}, own[] = {rank};
      for (const std::span<const int> wrong : {std::span<const int>(twice), {nobody}, {own}}) {
        const std::string said = outcome_of([&] { comm.shrink_without(wrong, 1s); });
        expect(said.starts_with("usage: shrink:"), said);
      }
      if (rank == 1) {
        // It depends on whether the others have decided who goes on.
        const std::string late = outcome_of([&] { comm.shrink(60s); });
        return expect(late.find("without this rank") != std::string::npos ||
                          late.starts_with("mismatch: shrink: rank "),
                      late);
      }
      Communicator three = comm.shrink_without(out, 60s);
      expect(three.size() == 3, "all but one");
      std::vector<float> sum{static_cast<float>(rank)};
      three.all_reduce(std::span(sum));
      expect(sum[0] == 0 + 2 + 3, std::to_string(sum[0]));
    });
    for (int rank = 0; rank < 4; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Quorum, RanksThatLeaveOutDifferentOnesAreTold) {
  over(kBoth, [&] {
    Processes ranks(4, [&](int rank) {
      Communicator comm = join(rank, 4);
      if (rank < 2) {
        const int out[] = {rank + 2};
        const std::string said = outcome_of([&] { comm.shrink_without(out, 60s); });
        expect(said.starts_with("mismatch: shrink: rank"), said);
      }
      comm.barrier();  // nothing has happened to the communicator
    });
    for (int rank = 0; rank < 4; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Quorum, ARankThatFreezesWhileTheOthersGoOnIsAloneAndGetsNoGroup) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      Communicator comm = join(rank, 3);
      comm.barrier();
      if (rank == 2) raise(SIGSTOP);
      if (rank == 1) comm.abort("rank 2 is frozen");
      outcome_of([&] {
        for (;;) comm.barrier();
      });
      if (rank == 2) {
        const std::string late = outcome_of([&] { comm.shrink(1s, 2); });
        return expect(late.find("without this rank") != std::string::npos, late);
      }
      Communicator two = comm.shrink(1s, 2);
      expect(two.size() == 2, "two of three");
      two.barrier();
    });
    EXPECT_THAT(ranks.outcome(1), IsEmpty());
    ranks.signal(2, SIGCONT);
    for (const int rank : {2, 0}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

// This does what ULFM's revoke does: every call of every rank ends, now or when it is made.
using Revoke = Agree;
TEST_F(Revoke, EndsTheMessagesOfRanksThatDoNotCommunicateWithTheCaller) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      Communicator comm = join(rank, 3);
      comm.barrier();
      if (rank == 0) comm.abort("enough");
      const std::string why = outcome_of([&] {
        for (int value = 0;; ++value) {
          if (rank == 1) comm.send(std::span(&value, 1), 2);
          comm.recv(std::span(&value, 1), 3 - rank);
          if (rank == 2) comm.send(std::span(&value, 1), 1);
        }
      });
      expect(why.find("rank 0 aborted the communicator: enough") != std::string::npos, why);
      // Nobody leaves before all have been told.
      expect(comm.agree(1, 20s).absent.empty(), "all have come");
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Revoke, EndsTheNextCallOfARankThatWaitsInNone) {
  over(kBoth, [&] {
    Sign revoked;
    Processes ranks(3, [&](int rank) {
      Communicator comm = join(rank, 3);
      comm.barrier();
      if (rank == 0) {
        comm.abort("enough");
        revoked.give();
      } else {
        revoked.wait();
        // This call needs nothing of rank 0, and at first nothing of anybody.
        int value = 0;
        const std::string why = outcome_of([&] {
          for (;;) comm.send(std::span(&value, 1), 3 - rank);
        });
        expect(why.find("rank 0 aborted the communicator: enough") != std::string::npos, why);
      }
      expect(comm.failure().has_value(), "it has failed here as well");
      expect(comm.agree(1, 20s).absent.empty(), "all have come");
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

}  // namespace
}  // namespace tutti::test
