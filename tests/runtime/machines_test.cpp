// Tests of real processes on two machines, each with one rank or several, which are started,
// killed, frozen and disconnected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <numeric>
#include <thread>

#include "../rendezvous/machines.h"
#include "common/fd.h"
#include "net/tcp_socket.h"
#include "processes.h"
#include "signs.h"
#include "threads.h"
#include "topology/caches.h"
#include "watchdog.h"

namespace {
int seconds_of_silence_are_divided_by = 1;
}  // namespace

/// Replaces the function of the C library in this whole program, so that a test can have the kernel
/// declare a silent peer lost sooner than the library asks for.
extern "C" int setsockopt(int socket, int level, int option, const void* value,
                          socklen_t bytes) noexcept {
  int divided = 0;
  if (level == IPPROTO_TCP && bytes == sizeof divided &&
      (option == TCP_KEEPIDLE || option == TCP_KEEPINTVL || option == TCP_USER_TIMEOUT)) {
    std::memcpy(&divided, value, sizeof divided);
    divided = std::max(divided / seconds_of_silence_are_divided_by, 1);
    value = &divided;
  }
  return static_cast<int>(syscall(SYS_setsockopt, socket, level, option, value, bytes));
}

namespace tutti::test {
namespace {

using std::chrono::milliseconds;

class TwoMachines : public testing::Test {
 protected:
  void SetUp() override {
    if (!machines_.made()) GTEST_SKIP() << Machines::kMissing;
  }

  /// Moves the forked process that calls it to its machine, and joins.
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

// Runs sums of every size, communicators split within and across the machines, and messages.
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
  for (const std::string placement : {"ab", "aabb", "abab", "abba", "abbb"}) {
    Processes ranks(static_cast<int>(placement.size()), [&](int rank) {
      Communicator comm = join(rank, placement, config());
      for (int round = 0; round < 3; ++round) work(comm, placement);
    });
    for (int rank = 0; rank < static_cast<int>(placement.size()); ++rank)
      EXPECT_THAT(ranks.outcome(rank), IsEmpty()) << placement << ", rank " << rank;
  }
}

// The newcomers are reached by other transports than those by which the old ranks reach each other.
TEST_F(TwoMachines, AJobGrowsOverBothAndKeepsTheConnectionsThatItHas) {
  for (const std::string placement : {"aab", "aaab", "aabb", "abba"}) {
    const int old = 2, size = static_cast<int>(placement.size());
    Sign grown;  // once for each newcomer
    Processes ranks(size, [&](int rank) {
      std::optional<Communicator> comm;
      Config its = config();
      if (rank < old) {
        comm = join(rank, placement.substr(0, static_cast<std::size_t>(old)), its);
      } else {
        if (rank > old) grown.wait(static_cast<std::uint32_t>(rank - old));
        machines_.enter(placement.substr(static_cast<std::size_t>(rank), 1));
        set_environment(0, 1, port_);
        setenv("MASTER_ADDR", "10.77.0.1", 1);
        for (const char* const name : {"RANK", "LOCAL_RANK", "WORLD_SIZE"}) unsetenv(name);
        comm = Communicator::join(its);
      }
      while (comm->size() < size) {
        *comm = comm->grow(1, std::chrono::seconds(20));
        if (rank == 0) grown.give();
      }
      for (int round = 0; round < 3; ++round) work(*comm, placement);
    });
    for (int rank = 0; rank < size; ++rank)
      EXPECT_THAT(ranks.outcome(rank), IsEmpty()) << placement << ", rank " << rank;
  }
}

// Rings go by all ranks of a machine before they leave it: 0, 2, 3, 1 and 4 where rank 1 and rank 4
// are on the other machine.
TEST_F(TwoMachines, RingsLeaveEachMachineOnceWhateverTheNumbersOfItsRanks) {
  const std::string placement = "abaab";
  const std::vector<int> next = {2, 4, 3, 1, 0};
  Processes ranks(static_cast<int>(placement.size()), [&](int rank) {
    Config by_ring = config();
    by_ring.algorithm = "ring";
    Communicator comm = join(rank, placement, by_ring);
    const std::string plan = comm.explain(Collective::all_gather, 1000, DataType::f32);
    const std::string to = "], rank " + std::to_string(next[static_cast<std::size_t>(rank)]) + "\n";
    expect(plan.find(to) != std::string::npos, plan.c_str());
    work(comm, placement);
  });
  for (int rank = 0; rank < static_cast<int>(placement.size()); ++rank)
    EXPECT_THAT(ranks.outcome(rank), IsEmpty()) << "rank " << rank;
}

/// Changes, for one process, the size of a core's second-level cache that the kernel reports.
class OtherCaches {
 public:
  /// Returns whether that is possible here, which it tries in a process of its own.
  static bool possible() {
    Processes trial(1, [](int) { tell(); });
    return trial.outcome(0).empty();
  }
  /// Called in a forked process with one thread. From then on rings have another size by default.
  static void tell() {
    const std::size_t before = default_ring_bytes(2);
    for (const char* size : {"8192K\n", "1024K\n"}) {
      const std::string reported = "/tmp/tutti-test-" + std::to_string(getpid()) + "-cache";
      std::ofstream(reported) << size;
      const bool done = unshare(CLONE_NEWNS) == 0 &&
                        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                        mount(reported.c_str(), kSize, nullptr, MS_BIND, nullptr) == 0;
      unlink(reported.c_str());
      expect(done, "the cache's size cannot be mounted over");
      if (default_ring_bytes(2) != before) return;
    }
    throw Error(ErrorKind::unavailable, "nothing is known of the caches here");
  }

 private:
  static constexpr const char* kSize = "/sys/devices/system/cpu/cpu0/cache/index2/size";
};

TEST_F(TwoMachines, WhoseCachesDifferStartWithMessagesThatAllCanSend) {
  if (!OtherCaches::possible())
    GTEST_SKIP() << "a process cannot be told of other caches here (root and mounts are needed)";
  struct Case {
    std::string placement, transports;
  };
  for (const Case& how : {Case{"ab", "auto"}, Case{"abba", "auto"}, Case{"ab", "tcp"}}) {
    Processes ranks(static_cast<int>(how.placement.size()), [&](int rank) {
      if (how.placement[static_cast<std::size_t>(rank)] == 'b') OtherCaches::tell();
      Config by = config();
      by.transports = how.transports;
      Communicator comm = join(rank, how.placement, by);
      for (int round = 0; round < 2; ++round) work(comm, how.placement);
    });
    for (int rank = 0; rank < static_cast<int>(how.placement.size()); ++rank)
      EXPECT_THAT(ranks.outcome(rank), IsEmpty())
          << how.placement << " by " << how.transports << ", rank " << rank;
  }
}

// This happens for example in containers, one of which sees fewer cores than the other.
TEST_F(TwoMachines, RanksOfOneMachineThatSeeItDifferentlyStartTogetherToo) {
  if (!OtherCaches::possible())
    GTEST_SKIP() << "a process cannot be told of other caches here (root and mounts are needed)";
  for (const int other : {0, 1})
    for (const char* transports : {"shm", "tcp"}) {
      Processes ranks(3, [&](int rank) {
        if (rank == other) OtherCaches::tell();
        Config by = config();
        by.transports = transports;
        Communicator comm = join(rank, "aaa", by);
        work(comm, "aaa");
      });
      for (int rank = 0; rank < 3; ++rank)
        EXPECT_THAT(ranks.outcome(rank), IsEmpty()) << transports << ", rank " << rank;
    }
}

TEST_F(TwoMachines, ASizeThatOnlyOneOfThemIsGivenIsStillRefusedByName) {
  for (std::size_t Config::*const size : {&Config::ring_bytes, &Config::message_bytes}) {
    Processes ranks(2, [&](int rank) {
      Config own = config();
      if (rank == 1) own.*size = 1 << 20;
      join(rank, "ab", own).barrier();
    });
    const char* const name = size == &Config::ring_bytes ? "ring_bytes" : "message_bytes";
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_THAT(ranks.outcome(rank),
                  AllOf(StartsWith("mismatch"), HasSubstr(std::string("rank 1: ") + name +
                                                          " is 1M there and 0 on rank 0")));
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

  // A store that is a file on both machines needs no secret, but the ranks still do.
  Config open = trusting;
  open.trust_network = false;
  open.store = "file:///tmp/tutti-test-" + std::to_string(getpid()) + "-machines";
  Processes ranks(2, [&](int rank) { join(rank, "ab", open).barrier(); });
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(ranks.outcome(rank), AllOf(StartsWith("usage"), HasSubstr("TUTTI_SECRET_FILE")));
  unlink(open.store.substr(7).c_str());
}

// A rank gives its sign when it has joined.
void sum_for_ever(Communicator& comm, Sign& joined) {
  std::vector<float> data(1'000'000, 0);
  comm.all_reduce(std::span(data));
  joined.give();
  for (;;) comm.all_reduce(std::span(data));
}

TEST_F(TwoMachines, AKilledRankIsLostAtOnceWhicheverMachineItIsOn) {
  for (const int victim : {1, 2, 3}) {
    Sign joined;
    Processes ranks(4, [&](int rank) {
      Config patient = config(std::chrono::minutes(5));
      patient.tls = victim == 3;
      Communicator comm = join(rank, "aabb", patient);
      sum_for_ever(comm, joined);
    });
    joined.wait(4);
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
    Sign joined, failed;
    Processes ranks(2, [&](int rank) {
      Communicator comm = join(rank, "ab", config(milliseconds(700)));
      try {
        sum_for_ever(comm, joined);
      } catch (...) {
        failed.give();
        throw;
      }
    });
    joined.wait(2);
    if (cut)
      machines_.cut_cable();
    else
      ranks.signal(1, SIGSTOP);
    // The test waits until the ranks have failed by themselves: rank 0's store would wait some
    // seconds for rank 1 to leave.
    failed.wait(cut ? 2 : 1);
    if (cut)
      machines_.mend_cable();
    else
      ranks.signal(1, SIGKILL);
    EXPECT_THAT(ranks.outcome(0), AllOf(StartsWith("timeout"), HasSubstr("waits for rank 1")));
    if (!cut) continue;
    EXPECT_THAT(ranks.outcome(1), AllOf(StartsWith("timeout"), HasSubstr("waits for rank 0")));
  }
}

int option_of(const Fd& socket, int option) {
  int value = 0;
  socklen_t bytes = sizeof value;
  EXPECT_EQ(getsockopt(socket.get(), IPPROTO_TCP, option, &value, &bytes), 0);
  return value;
}

TEST(VanishedMachines, AreGivenHalfAMinute) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(socket);
  net::tune(socket.get());
  EXPECT_EQ(option_of(socket, TCP_KEEPIDLE) +
                option_of(socket, TCP_KEEPINTVL) * option_of(socket, TCP_KEEPCNT),
            30);
  EXPECT_EQ(option_of(socket, TCP_USER_TIMEOUT), 30'000);
}

// Three jobs run at once. The first has bytes under way when the cable is cut, and the second has
// none. The third loses no cable, and its receiver computes for longer than the time after which a
// vanished machine is lost. That time is a fifth of half a minute here.
TEST_F(TwoMachines, AVanishedOneIsLostLongBeforeTheDeadlineAndAPeerThatComputesIsNot) {
  watchdog::allow(std::chrono::minutes(3));
  seconds_of_silence_are_divided_by = 10;  // The kernel then waits for 3 s.
  constexpr std::chrono::seconds kComputes{5};
  const auto job = [this](int rank, const char* placement, int port,
                          const std::string& by = "auto") {
    Config patient = config(std::chrono::minutes(5));
    patient.transports = by;
    machines_.enter({placement[rank]});
    set_environment(rank, 2, port);
    setenv("MASTER_ADDR", "10.77.0.1", 1);
    return Communicator::from_env(patient);
  };
  Sign joined;
  Processes busy(2, [&, port = unused_port()](int rank) {
    Communicator comm = job(rank, "ab", port);
    sum_for_ever(comm, joined);
  });
  Processes waiting(2, [&, port = unused_port()](int rank) {
    Communicator comm = job(rank, "ab", port);
    comm.barrier();
    joined.give();
    int word = 0;
    comm.recv(std::span(&word, 1), 1 - rank);  // Nobody sends this message.
  });
  Processes computing(2, [&, port = unused_port()](int rank) {
    Communicator comm = job(rank, "aa", port, "tcp");
    comm.barrier();
    joined.give();
    std::vector<float> data(16 << 20, 1);
    // The test is about the time that passes here.
    if (rank == 1) std::this_thread::sleep_for(kComputes);
    comm.all_reduce(std::span(data));
    expect(data.back() == 2, "a sum");
  });
  joined.wait(6);
  machines_.cut_cable();
  EXPECT_THAT(busy.outcome(0), AllOf(StartsWith("peer_lost"), HasSubstr("rank 1 is lost")));
  EXPECT_THAT(waiting.outcome(0), AllOf(StartsWith("peer_lost"), HasSubstr("rank 1 is lost")));
  for (int rank = 0; rank < 2; ++rank) EXPECT_THAT(computing.outcome(rank), IsEmpty());
  seconds_of_silence_are_divided_by = 1;
}

}  // namespace
}  // namespace tutti::test
