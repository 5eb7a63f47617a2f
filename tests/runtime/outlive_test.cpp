// Tests of jobs that outlive their rank 0, whose process served the store, with ranks as processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <utility>

#include "common/log.h"
#include "growing_job.h"
#include "over_transports.h"
#include "processes.h"
#include "rendezvous/launch/launch_environment.h"
#include "rendezvous/store/open_store.h"
#include "rendezvous/store/protocol.h"
#include "signs.h"
#include "threads.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

/// A rank, which can wait until another one stands by for the store's server.
struct Rank {
  std::shared_ptr<Store> store;
  Communicator comm;

  void await_standby(int rank) const { await_standby(std::to_string(rank)); }
  void await_standby(const std::string& who) const {
    store->wait(std::string(rendezvous::kStandbyKey) + who, std::chrono::steady_clock::now() + 30s);
  }
};

// Waits until a rank behind `server` stands by: which one it is depends on who comes first.
void await_standby_of(const Rank& self, int server, int size) {
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  for (int rank = server;;) {
    rank = rank + 1 < size ? rank + 1 : server + 1;
    const auto now = std::chrono::steady_clock::now();
    expect(now < deadline, "nobody stands by");
    try {
      return self.store->wait(std::string(rendezvous::kStandbyKey) + std::to_string(rank),
                              now + 20ms);
    } catch (const Error& error) {
      expect(error.kind() == ErrorKind::timeout, error.what());
    }
  }
}

class Outlive : public OverTransports {
 protected:
  Rank start(int rank, int size) const {
    LaunchEnvironment launch;
    launch.rank = launch.local_rank = rank;
    launch.size = launch.local_size = size;
    launch.master_address = "127.0.0.1";
    launch.master_port = port_;
    const Config config = quick_config(transport_);
    Log log(LogLevel::error, {});
    auto store = open_store(launch, config, std::chrono::steady_clock::now() + 30s, log).store;
    return {store, Communicator::create(store, rank, size, config)};
  }
  Communicator come() const {
    set_environment(0, 1, port_);
    for (const char* const name : {"RANK", "LOCAL_RANK", "WORLD_SIZE"}) unsetenv(name);
    return Communicator::join(quick_config(transport_));
  }
};

TEST_F(Outlive, TheServersOfTheStoreAreKilledOneAfterTheOtherAndTheOthersGoOn) {
  over(kBoth, [&] {
    Processes ranks(4, [&](int rank) {
      Rank self = start(rank, 4);
      for (int server = 0; server < 2; ++server) {
        await_standby_of(self, server, 4);
        self.comm.barrier();
        if (rank == server) raise(SIGKILL);
        fail(self.comm);
        self.comm = self.comm.shrink(20s);
        expect(self.comm.size() == 3 - server, "who is left");
        expect(self.comm.agree(7).flags == 7, "they agree");
      }
      expect(who(self.comm, rank) == std::vector<int>{2, 3}, "the last two");
    });
    for (const int rank : {2, 3}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
    for (const int rank : {0, 1}) EXPECT_EQ(ranks.outcome(rank), "ended by signal 9");
  });
}

TEST_F(Outlive, IdleRanksFindTheStoreAgainWhenTheyNeedIt) {
  over(kBoth, [&] {
    Sign ready;
    Processes ranks(3, [&](int rank) {
      Rank self = start(rank, 3);
      self.await_standby(1);
      self.comm.barrier();
      if (rank == 0) {
        ready.give();
        pause();
      }
      ready.wait();
      fail(self.comm);
      expect(who(*std::make_unique<Communicator>(self.comm.shrink(20s)), rank) ==
                 std::vector<int>{1, 2},
             "without rank 0");
    });
    ready.wait();
    ranks.signal(0, SIGKILL);
    for (const int rank : {1, 2}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

// Rank 0 dies while the others are in shrink() already, in which it does not take part.
TEST_F(Outlive, Rank0DiesWhileTheOthersShrink) {
  over(kBoth, [&] {
    Sign shrinking;
    Processes ranks(4, [&](int rank) {
      Rank self = start(rank, 4);
      self.await_standby(1);
      self.comm.barrier();
      if (rank == 3) raise(SIGKILL);
      fail(self.comm);
      if (rank == 0) {
        shrinking.wait(2);
        raise(SIGKILL);
      }
      shrinking.give();
      Communicator left = self.comm.shrink(20s);
      expect(who(left, rank) == std::vector<int>{1, 2}, "who is left");
    });
    for (const int rank : {1, 2}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Outlive, ANewcomerFindsTheStoreAndServesItWhenItIsTheLast) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      if (rank == 2) {
        Communicator comm = come();
        expect(who(comm, rank) == std::vector<int>{1, 2}, "as the last");
        comm.barrier();
        fail(comm);
        comm = comm.shrink(20s);
        expect(comm.size() == 1 && comm.agree(5).flags == 5, "alone");
        return;
      }
      Rank self = start(rank, 2);
      self.await_standby(1);
      self.comm.barrier();
      if (rank == 0) raise(SIGKILL);
      fail(self.comm);
      self.comm = self.comm.shrink(20s).grow(1, 20s);
      expect(who(self.comm, rank) == std::vector<int>{1, 2}, "with a newcomer");
      self.await_standby("newcomer");
      self.comm.barrier();
      raise(SIGKILL);
    });
    EXPECT_EQ(ranks.outcome(1), "ended by signal 9");
    EXPECT_THAT(ranks.outcome(2), IsEmpty());
  });
}

TEST_F(Outlive, TheOthersShrinkAlthoughRank0LeftRegularly) {
  over(kBoth, [&] {
    Processes ranks(3, [&](int rank) {
      Rank self = start(rank, 3);
      self.await_standby(1);
      self.comm.barrier();
      if (rank == 0) return;
      fail(self.comm);
      Communicator left = self.comm.shrink(30s);
      expect(who(left, rank) == std::vector<int>{1, 2}, "without rank 0");
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

TEST_F(Outlive, ServerAndStandbyThatDieTogetherAreAnErrorThatSaysSo) {
  over(kBoth, [&] {
    Sign ready;
    Processes ranks(4, [&](int rank) {
      Rank self = start(rank, 4);
      self.await_standby(1);
      self.comm.barrier();
      ready.give();
      if (rank < 2) pause();
      fail(self.comm);
      const std::string why = outcome_of([&] { self.comm.shrink(20s); });
      expect(why.starts_with("peer_lost") && why.find("stood by") != std::string::npos, why);
    });
    ready.wait(4);
    ranks.signal(1, SIGSTOP);
    ranks.signal(0, SIGKILL);
    ranks.signal(1, SIGKILL);
    for (const int rank : {2, 3}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
  });
}

}  // namespace
}  // namespace tutti::test
