// Real processes on two machines, each with one rank or several: started, killed, frozen, cut off.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <numeric>
#include <thread>

#include "../rendezvous/machines.h"
#include "processes.h"
#include "threads.h"
#include "watchdog.h"

namespace tutti::test {
namespace {

using std::chrono::milliseconds;

class TwoMachines : public testing::Test {
 protected:
  void SetUp() override {
    if (!machines_.made()) GTEST_SKIP() << Machines::kMissing;
  }

  /// In a forked process: goes to its machine and joins.
  Communicator join(int rank, const std::string& placement, const Config& config) const {
    const auto size = static_cast<int>(placement.size());
    machines_.enter(placement.substr(static_cast<std::size_t>(rank), 1));
    set_environment(rank, size, port_);
    setenv("MASTER_ADDR", "10.77.0.1", 1);
    return Communicator::from_env(config);
  }

  static Config config(milliseconds timeout = std::chrono::seconds(20)) {
    Config config = quick_config();
    config.secret = "of the two machines' job";
    config.timeout = timeout;
    return config;
  }

  Machines machines_;
  const int port_ = unused_port();
};

void expect(bool what, const char* name) {
  if (!what) throw Error(ErrorKind::internal, name);
}

// Sums of every size, parts of the communicator within and across the machines, and messages.
void work(Communicator& comm, const std::string& placement) {
  const int ranks = comm.size();
  for (const std::size_t count : {1u, 100u, 5'000u, 300'000u}) {
    std::vector<float> data(count, static_cast<float>(comm.rank() + 1));
    comm.all_reduce(std::span(data));
    expect(data == std::vector<float>(count, static_cast<float>(ranks * (ranks + 1) / 2)), "a sum");
  }
  const std::string machines = "ab";
  const int own = static_cast<int>(machines.find(placement[static_cast<std::size_t>(comm.rank())]));
  Communicator near = comm.split(own, comm.rank()).value();
  Communicator far = comm.split(comm.rank() % 2, -comm.rank()).value();
  for (Communicator* part : {&near, &far, &comm}) {
    std::vector<int> gathered(static_cast<std::size_t>(part->size()));
    const std::vector<int> mine{part->rank()};
    part->all_gather(std::span(mine), std::span(gathered));
    std::vector<int> expected(gathered.size());
    std::iota(expected.begin(), expected.end(), 0);
    expect(gathered == expected, "the ranks of a part");
  }
  std::vector<double> message(70'000, comm.rank()), received(70'000);
  const int next = (comm.rank() + 1) % ranks, last = (comm.rank() + ranks - 1) % ranks;
  Work sent = comm.send_async(std::span<const double>(message), next);
  comm.recv(std::span(received), last);
  sent.wait();
  expect(received == std::vector<double>(70'000, last), "a message");
}

TEST_F(TwoMachines, RanksReduceGatherSplitAndSendWhereverTheyAre) {
  for (const std::string placement : {"ab", "aabb", "abba", "abbb"}) {
    Processes ranks(static_cast<int>(placement.size()), [&](int rank) {
      Communicator comm = join(rank, placement, config());
      for (int round = 0; round < 3; ++round) work(comm, placement);
    });
    for (int rank = 0; rank < static_cast<int>(placement.size()); ++rank)
      EXPECT_THAT(ranks.outcome(rank), IsEmpty()) << placement << ", rank " << rank;
  }
}

TEST_F(TwoMachines, RanksDoTheSameOverEncryptedConnections) {
  Config encrypted = config();
  encrypted.tls = true;
  for (const std::string placement : {"ab", "abba"}) {
    Processes ranks(static_cast<int>(placement.size()), [&](int rank) {
      Communicator comm = join(rank, placement, encrypted);
      for (int round = 0; round < 3; ++round) work(comm, placement);
    });
    for (int rank = 0; rank < static_cast<int>(placement.size()); ++rank)
      EXPECT_THAT(ranks.outcome(rank), IsEmpty()) << placement << ", rank " << rank;
  }
}

TEST_F(TwoMachines, WhereOneEncryptsAndTheOtherDoesNotBothSayWhichAndWhatToDo) {
  Processes ranks(2, [&](int rank) {
    Config own = config();
    own.tls = rank == 1;
    join(rank, "ab", own).barrier();
  });
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(ranks.outcome(rank), AllOf(StartsWith("mismatch"), HasSubstr("TUTTI_TLS=yes")));
}

TEST_F(TwoMachines, WithoutASecretSayWhatToDoUnlessTheNetworkIsTrusted) {
  Config trusting = config();
  trusting.secret.clear();
  trusting.trust_network = true;
  Processes trusted(4, [&](int rank) { join(rank, "aabb", trusting).barrier(); });
  for (int rank = 0; rank < 4; ++rank) EXPECT_THAT(trusted.outcome(rank), IsEmpty());

  // Where the store needs none, being a file that both machines have, the ranks still do.
  Config open = trusting;
  open.trust_network = false;
  open.store = "file:///tmp/tutti-test-" + std::to_string(getpid()) + "-machines";
  Processes ranks(2, [&](int rank) { join(rank, "ab", open).barrier(); });
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(ranks.outcome(rank), AllOf(StartsWith("usage"), HasSubstr("TUTTI_SECRET_FILE")));
  unlink(open.store.substr(7).c_str());
}

void sum_for_ever(Communicator& comm) {
  std::vector<float> data(1'000'000, 0);
  for (;;) comm.all_reduce(std::span(data));
}

TEST_F(TwoMachines, AKilledRankIsLostAtOnceWhicheverMachineItIsOn) {
  for (const int victim : {1, 2, 3}) {
    Processes ranks(4, [&](int rank) {
      Config patient = config(std::chrono::minutes(5));
      patient.tls = victim == 3;
      Communicator comm = join(rank, "aabb", patient);
      sum_for_ever(comm);
    });
    std::this_thread::sleep_for(milliseconds(300));
    ranks.signal(victim, SIGKILL);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      EXPECT_THAT(ranks.outcome(rank),
                  AllOf(StartsWith("peer_lost"), HasSubstr("rank " + std::to_string(victim))));
    }
  }
}

TEST_F(TwoMachines, AFrozenRankAndACutCableAreReportedByTheDeadline) {
  for (const bool cut : {false, true}) {
    Processes ranks(2, [&](int rank) {
      Communicator comm = join(rank, "ab", config(milliseconds(700)));
      sum_for_ever(comm);
    });
    std::this_thread::sleep_for(milliseconds(300));
    if (cut)
      machines_.cut_cable();
    else
      ranks.signal(1, SIGSTOP);
    EXPECT_THAT(ranks.outcome(0), AllOf(StartsWith("timeout"), HasSubstr("waits for rank 1")));
    if (!cut) continue;
    EXPECT_THAT(ranks.outcome(1), AllOf(StartsWith("timeout"), HasSubstr("waits for rank 0")));
  }
}

// Three jobs at once, since silence takes half a minute: one with bytes on their way when the cable
// goes, one with none, and one that no cable is cut of, whose receiver computes for longer than a
// vanished machine is given.
TEST_F(TwoMachines, AVanishedOneIsLostLongBeforeTheDeadlineAndAPeerThatComputesIsNot) {
  watchdog::allow(std::chrono::minutes(3));
  constexpr std::chrono::seconds kComputes{40};
  const auto job = [this](int rank, const char* placement, int port,
                          const std::string& by = "auto") {
    Config patient = config(std::chrono::minutes(5));
    patient.transports = by;
    machines_.enter({placement[rank]});
    set_environment(rank, 2, port);
    setenv("MASTER_ADDR", "10.77.0.1", 1);
    return Communicator::from_env(patient);
  };
  Processes busy(2, [&, port = unused_port()](int rank) {
    Communicator comm = job(rank, "ab", port);
    sum_for_ever(comm);
  });
  Processes waiting(2, [&, port = unused_port()](int rank) {
    Communicator comm = job(rank, "ab", port);
    int word = 0;
    comm.recv(std::span(&word, 1), 1 - rank);  // that nobody sends
  });
  Processes computing(2, [&, port = unused_port()](int rank) {
    Communicator comm = job(rank, "aa", port, "tcp");
    std::vector<float> data(16 << 20, 1);
    if (rank == 1) std::this_thread::sleep_for(kComputes);
    comm.all_reduce(std::span(data));
    expect(data.back() == 2, "a sum");
  });
  std::this_thread::sleep_for(std::chrono::seconds(1));
  machines_.cut_cable();
  EXPECT_THAT(busy.outcome(0), AllOf(StartsWith("peer_lost"), HasSubstr("rank 1 is lost")));
  EXPECT_THAT(waiting.outcome(0), AllOf(StartsWith("peer_lost"), HasSubstr("rank 1 is lost")));
  for (int rank = 0; rank < 2; ++rank) EXPECT_THAT(computing.outcome(rank), IsEmpty());
}

}  // namespace
}  // namespace tutti::test
