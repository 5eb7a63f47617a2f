// Tests how communicators of NCCL programs are made, changed and ended, also where something fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <tutti/communicator.hpp>
#include <tutti/store.hpp>
#include <vector>

#include "../../net/slow_path.h"
#include "ranks.h"

namespace tutti::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

std::size_t entries(const std::string& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// AddressSanitizer keeps memory that was freed.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeepsFreedMemory = true;
#elif defined(__has_feature)
constexpr bool kKeepsFreedMemory = __has_feature(address_sanitizer);
#else
constexpr bool kKeepsFreedMemory = false;
#endif

// Reads a number of bytes, in KiB, from /proc/self/status.
long resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  return 0;
}

TEST(NcclCommunicators, ShrinkLeavesOutWhoIsNamed) {
  in_processes(4, [](ncclComm_t comm, int rank, int) {
    if (rank == 1) return;
    int excluded = 1;
    ncclComm_t rest = nullptr;
    CHECK_NCCL(ncclCommShrink(comm, &excluded, 1, &rest, nullptr, 0));
    expect_equal(size_of_comm(rest), 3, "the size");
    expect_equal(rank_of(rest), rank == 0 ? 0 : rank - 1, "the rank");
    expect_equal(sum(rest, rank), 5, "the sum");
    CHECK_NCCL(ncclCommDestroy(rest));
  });
}

// The rank that has made the id serves the store; here it is the one that dies.
TEST(NcclCommunicators, ShrinkGoesOnAfterARankWasKilled) {
  for (const int killed : {2, 0}) {
    SharedId id;
    Processes ranks(3, [&](int rank) {
      ncclComm_t comm = nullptr, rest = nullptr;
      CHECK_NCCL(ncclCommInitRank(&comm, 3, id.of_rank(rank), rank));
      sum(comm, 1);
      if (rank == killed) {
        sum(comm, 1);
        usleep(200'000);  // The standby of the store is there a little after the start.
        raise(SIGKILL);
      }
      sum(comm, 1);
      int value = 1;
      expect_equal(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr),
                   ncclRemoteError, "a call with a rank that is dead");
      ncclResult_t error = ncclSuccess;
      CHECK_NCCL(ncclCommGetAsyncError(comm, &error));
      expect_equal(error, ncclRemoteError, "the asynchronous error");
      int excluded = killed;
      CHECK_NCCL(ncclCommShrink(comm, &excluded, 1, &rest, nullptr, 1));
      expect_equal(sum(rest, 1), 2, "the sum of those that are left");
      CHECK_NCCL(ncclCommAbort(comm));
      CHECK_NCCL(ncclCommDestroy(rest));
    });
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(ranks.outcome(rank), rank == killed ? "ended by signal 9" : "") << "rank " << rank;
  }
}

// Two ranks grow to four, over the transport, and to a part without the second.
void grow_over(const char* transport) {
  SharedId id, growing;
  Processes ranks(4, [&](int rank) {
    setenv("TUTTI_TRANSPORTS", transport, 1);
    ncclComm_t comm = nullptr, grown = nullptr, rest = nullptr;
    if (rank < 2) {
      CHECK_NCCL(ncclCommInitRank(&comm, 2, id.of_rank(rank), rank));
      ncclUniqueId own;
      if (rank == 1) {
        CHECK_NCCL(ncclCommGetUniqueId(comm, &own));
        growing.set(own);
      }
      CHECK_NCCL(ncclCommGrow(comm, 4, rank == 1 ? &own : nullptr, -1, &grown, nullptr));
    } else {
      const ncclUniqueId its = growing.get();
      CHECK_NCCL(ncclCommGrow(nullptr, 4, &its, rank, &grown, nullptr));
    }
    expect_equal(rank_of(grown), rank, "the rank");
    expect_equal(sum(grown, rank), 6, "the sum of all");
    int excluded = 1;
    if (rank != 1) CHECK_NCCL(ncclCommShrink(grown, &excluded, 1, &rest, nullptr, 0));
    if (rank != 1) expect_equal(sum(rest, rank), 5, "the sum of the rest");
    CHECK_NCCL(ncclCommDestroy(comm));
    CHECK_NCCL(ncclCommDestroy(grown));
    CHECK_NCCL(ncclCommDestroy(rest));
  });
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(ranks.outcome(rank), "") << "rank " << rank;
}

TEST(NcclCommunicators, GrowTakesNewProcessesInWithTheRanksThatTheyName) { grow_over("auto"); }

// Each id has a secret of its own.
TEST(NcclCommunicators, GrowTakesNewProcessesInOverTcp) { grow_over("tcp"); }

TEST(NcclCommunicators, RevokeEndsCallsThatWaitAndLetsTheRanksSplit) {
  // The part of rank 1 needs the store of the others, who need nothing of rank 1.
  auto* const done =
      static_cast<std::atomic<int>*>(mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(done, MAP_FAILED);
  in_processes(3, [done](ncclComm_t comm, int rank, int) {
    int value = 1;
    if (rank != 0) {
      expect_equal(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr),
                   ncclRemoteError, "a call that waits for rank 0");
    }
    CHECK_NCCL(ncclCommRevoke(comm, 0));
    ncclResult_t error = ncclInternalError;
    CHECK_NCCL(ncclCommGetAsyncError(comm, &error));
    expect_equal(error, ncclSuccess, "the asynchronous error of a communicator that is revoked");
    expect_equal(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr),
                 ncclInvalidUsage, "a call that comes later");
    ncclComm_t part = nullptr;
    CHECK_NCCL(ncclCommSplit(comm, rank == 1 ? 1 : 0, -rank, &part, nullptr));
    expect_equal(sum(part, rank), rank == 1 ? 1 : 2, "the sum of a part");
    expect_equal(rank_of(part), rank == 0 ? 1 : 0, "the rank in a part");
    CHECK_NCCL(ncclCommDestroy(part));
    for (++*done; *done < 3;) usleep(1000);
  });
  munmap(done, sizeof(std::atomic<int>));
}

TEST(NcclCommunicators, RevokeEndsACallOfAnotherThread) {
  in_processes(2, [](ncclComm_t comm, int rank, int) {
    int value = 1;
    sum(comm, 1);
    if (rank == 1) {
      expect_equal(ncclRecv(&value, 1, ncclInt32, 0, comm, nullptr), ncclRemoteError,
                   "a receive from rank 0, which sends nothing");
      return;
    }
    ncclResult_t during = ncclSuccess;
    std::thread caller(
        [&] { during = ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr); });
    usleep(20'000);  // The call ends whether it has begun to wait or not.
    CHECK_NCCL(ncclCommRevoke(comm, 0));
    caller.join();
    expect_equal(during == ncclRemoteError || during == ncclInvalidUsage, true, "the result");
  });
}

TEST(NcclCommunicators, AbortEndsOneWhoseOtherRanksNeverCome) {
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  ncclConfig_t config;
  config.blocking = 0;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  EXPECT_EQ(state, ncclInProgress);
  int value = 1;
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

// The store of a known address lives as long as the process that serves it.
TEST(NcclCommunicators, LeaveNoKeysInAStoreThatStays) {
  setenv("NCCL_COMM_ID", ("127.0.0.1:" + std::to_string(unused_port())).c_str(), 1);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> ranks;
  std::atomic<int> made{0};
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRank(&comm, 2, id, rank), ncclSuccess) << ncclGetLastError(nullptr);
      ++made;
      while (made < 3) usleep(1000);  // The watchdog bounds it.
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    });
  while (made < 2) usleep(1000);
  unsetenv("NCCL_COMM_ID");
  const auto bytes = static_cast<std::size_t>(id.internal[5]);
  const auto soon = [] { return std::chrono::steady_clock::now() + std::chrono::seconds(20); };
  const auto store = connect_store({&id.internal[8], bytes}, soon(), Config{});
  EXPECT_EQ(store->add("nccl of 2/1/came", 0, soon()), 2);
  ++made;
  for (std::thread& rank : ranks) rank.join();
  while (store->add("nccl of 2/1/came", 0, soon()) != 0) usleep(1000);  // The watchdog bounds it.
  EXPECT_EQ(store->add("nccl of 2/rank 1", 0, soon()), 1) << "the next one has another number";
}

// Makes an id that leads to its store through a slow path alone.
struct FarId {
  explicit FarId(SlowPath::Clock::duration delay) {
    ncclGetUniqueId(&id);
    std::uint16_t port = 0;
    std::memcpy(&port, &id.internal[kPortAt], sizeof port);
    path.emplace(port, delay);
    port = static_cast<std::uint16_t>(path->port());
    std::memcpy(&id.internal[kPortAt], &port, sizeof port);
    id.internal[kFlagsAt] |= 2;  // The store may come later than the ticket.
    id.internal[kServerAt] ^= 1;
  }

  // They lie behind the first 8 bytes, see rendezvous/store/ticket.h.
  static constexpr std::size_t kFlagsAt = 9, kServerAt = 10, kPortAt = 34;
  ncclUniqueId id{};
  std::optional<SlowPath> path;
};

// A round trip is longer than the time after which the ranks look whether they are to give up.
TEST(NcclCommunicators, AreMadeAlthoughTheirStoreIsFarAway) {
  const FarId far(std::chrono::milliseconds(110));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRank(&comm, 2, far.id, rank), ncclSuccess) << ncclGetLastError(nullptr);
      EXPECT_EQ(sum(comm, 1), 2);
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    });
  for (std::thread& rank : ranks) rank.join();
}

// Nothing comes from the store for an hour.
TEST(NcclCommunicators, AbortEndsOneWhoseStoreDoesNotAnswer) {
  setenv("TUTTI_STARTUP_TIMEOUT_MS", "3600000", 1);
  const FarId far(std::chrono::hours(1));
  ncclComm_t comm = nullptr;
  ncclConfig_t config = not_blocking();
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, far.id, 0, &config), ncclInProgress);
  usleep(50'000);  // It is connected, most probably, and waits for an answer.
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  setenv("TUTTI_STARTUP_TIMEOUT_MS", "20000", 1);
}

// Over TCP, ranks wait for each other's connections once they know their addresses.
TEST(NcclCommunicators, ARankThatFailsWhileTheOthersConnectIsNamedToThem) {
  SharedId id;
  Processes ranks(2, [&](int rank) {
    setenv("TUTTI_TRANSPORTS", "tcp", 1);
    setenv("TUTTI_SECRET", rank == 0 ? "one secret of many" : "another secret than that", 1);
    ncclComm_t comm = nullptr;
    CHECK_NCCL(ncclCommInitRank(&comm, 2, id.of_rank(rank), rank));
  });
  EXPECT_THAT(ranks.outcome(1), HasSubstr("has another secret than this rank"));
  EXPECT_THAT(ranks.outcome(0), HasSubstr("rank 1 failed to join: "));
}

TEST(NcclCommunicators, AbortEndsOneThatConnectsAndTellsTheOthers) {
  setenv("TUTTI_TRANSPORTS", "tcp", 1);
  for (int pause_us = 200; pause_us < 3000; pause_us += 400) {
    SharedId id;
    std::array<std::string, 3> told;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        ncclConfig_t config = not_blocking();
        ncclComm_t comm = nullptr;
        ncclCommInitRankConfig(&comm, 3, id.of_rank(rank), rank, &config);
        if (rank == 1) usleep(static_cast<unsigned>(pause_us));
        if (rank != 1 && settled(comm) != ncclSuccess)
          told[static_cast<std::size_t>(rank)] = ncclGetLastError(comm);
        ncclCommAbort(comm);
      });
    for (std::thread& thread : threads) thread.join();
    // A store ends with the last rank that is connected, even if the others come only then.
    for (const int rank : {0, 2})
      EXPECT_THAT(told[static_cast<std::size_t>(rank)],
                  AnyOf("", HasSubstr("abort"), HasSubstr("all that had connected have left it")))
          << pause_us << " us";
  }
  unsetenv("TUTTI_TRANSPORTS");
}

TEST(NcclCommunicators, SeveralIdsMakeOneCommunicator) {
  SharedId first, second;
  Processes ranks(2, [&](int rank) {
    std::vector<ncclUniqueId> ids{first.of_rank(rank), second.of_rank(rank)};
    ncclComm_t comm = nullptr;
    CHECK_NCCL(ncclCommInitRankScalable(&comm, 2, rank, 2, ids.data(), nullptr));
    expect_equal(sum(comm, 1), 2, "the sum");
    CHECK_NCCL(ncclCommFinalize(comm));
    int value = 0;
    expect_equal(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr),
                 ncclInvalidUsage, "a call after the end");
    CHECK_NCCL(ncclCommDestroy(comm));
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.outcome(rank), "") << "rank " << rank;
}

// Nobody hands an id to anybody. Rank 0 may come last, and the communicators of one address may
// exist at the same time.
TEST(NcclCommunicators, AKnownAddressTakesThePlaceOfAnId) {
  const std::string address = "127.0.0.1:" + std::to_string(unused_port());
  Processes ranks(3, [&](int rank) {
    setenv("NCCL_COMM_ID", address.c_str(), 1);
    ncclComm_t comms[3] = {};
    for (int round = 0; round < 12; ++round) {
      if (rank == round % 3) usleep(20'000);
      ncclUniqueId id;
      CHECK_NCCL(ncclGetUniqueId(&id));
      ncclComm_t& comm = comms[round % 3];
      const int size = round % 4 == 3 ? 2 : 3;
      if (comm != nullptr) CHECK_NCCL(ncclCommDestroy(comm));
      comm = nullptr;
      if (rank == size) continue;
      CHECK_NCCL(ncclCommInitRank(&comm, size, id, rank));
      expect_equal(sum(comm, 1), size, "the sum");
    }
    for (const ncclComm_t comm : comms)
      if (comm != nullptr) CHECK_NCCL(ncclCommDestroy(comm));
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.outcome(rank), "") << "rank " << rank;
}

// Each communicator of a group is made by a thread of its own.
TEST(NcclCommunicators, OfAKnownAddressAreThoseThatWereMadeAtTheSamePlaceOfAGroup) {
  const std::string address = "127.0.0.1:" + std::to_string(unused_port());
  Processes ranks(2, [&](int rank) {
    setenv("NCCL_COMM_ID", address.c_str(), 1);
    for (int round = 0; round < 10; ++round) {
      ncclUniqueId id;
      CHECK_NCCL(ncclGetUniqueId(&id));
      ncclComm_t comms[3] = {};
      CHECK_NCCL(ncclGroupStart());
      for (ncclComm_t& comm : comms) CHECK_NCCL(ncclCommInitRank(&comm, 2, id, rank));
      CHECK_NCCL(ncclGroupEnd());
      // Were two of them crossed, messages would be, too.
      int sent[3] = {0, 1, 2}, received[3] = {};
      CHECK_NCCL(ncclGroupStart());
      for (int i = 0; i < 3; ++i) {
        CHECK_NCCL(ncclSend(&sent[i], 1, ncclInt32, 1 - rank, comms[i], nullptr));
        CHECK_NCCL(ncclRecv(&received[i], 1, ncclInt32, 1 - rank, comms[i], nullptr));
      }
      CHECK_NCCL(ncclGroupEnd());
      for (int i = 0; i < 3; ++i) expect_equal(received[i], i, "the communicator");
      for (const ncclComm_t comm : comms) CHECK_NCCL(ncclCommDestroy(comm));
    }
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.outcome(rank), "") << "rank " << rank;
}

TEST(NcclCommunicators, TwoProcessesWithOneRankAreToldSo) {
  SharedId id;
  Processes ranks(2, [&](int number) {
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRank(&comm, 2, id.of_rank(number), 0);
    expect_equal(result, ncclInvalidUsage, "the result");
    expect_equal(comm == nullptr, true, "whether there is no communicator");
    throw std::runtime_error(ncclGetLastError(nullptr));
  });
  std::string both = ranks.outcome(0) + ranks.outcome(1);
  EXPECT_THAT(both, HasSubstr("rank 0 has come to this ncclUniqueId before"));
}

TEST(NcclCommunicators, DifferentNumbersOfRanksAreToldTheRankThatCameLater) {
  SharedId id;
  Processes ranks(2, [&](int rank) {
    ncclComm_t comm = nullptr;
    CHECK_NCCL(ncclCommInitRank(&comm, 2 + rank, id.of_rank(rank), rank));
  });
  const std::string both = ranks.outcome(0) + ranks.outcome(1);
  EXPECT_THAT(both, HasSubstr("and the rank that came first"));
  // The other one does not wait any longer: it is told, or finds that the process which serves the
  // store has ended.
  EXPECT_THAT(both, AnyOf(HasSubstr("failed to join"), HasSubstr("the store is gone")));
}

TEST(NcclCommunicators, AChildProcessCannotUseItsParentsAndLeavesThemAlone) {
  in_processes(2, [](ncclComm_t comm, int, int) {
    const pid_t child = fork();
    if (child == 0) {
      int value = 1;
      const bool refused =
          ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr) == ncclInvalidUsage;
      _exit(refused && ncclCommDestroy(comm) == ncclSuccess ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    expect_equal(status, 0, "the end of the child");
    expect_equal(sum(comm, 1), 2, "the sum");
  });
}

TEST(NcclCommunicators, AProcessMayEndWithoutDestroyingThem) {
  Processes ranks(1, [](int) {
    ncclComm_t comm = nullptr;
    ncclUniqueId id, unused;
    CHECK_NCCL(ncclGetUniqueId(&id));
    CHECK_NCCL(ncclGetUniqueId(&unused));
    CHECK_NCCL(ncclCommInitRank(&comm, 1, id, 0));
    expect_equal(sum(comm, 3), 3, "the sum of one rank");
    const pid_t child = fork();  // exit() runs destructors and handlers, unlike the end of a rank.
    if (child == 0) exit(0);
    int status = -1;
    waitpid(child, &status, 0);
    expect_equal(status, 0, "the end of the child");
  });
  EXPECT_EQ(ranks.outcome(0), "");
  const pid_t alone = fork();
  if (alone == 0) {
    ncclComm_t comms[2];
    if (ncclCommInitAll(comms, 2, nullptr) != ncclSuccess) _exit(1);
    exit(0);
  }
  int status = -1;
  waitpid(alone, &status, 0);
  EXPECT_EQ(status, 0);
}

// Rank 1 is killed while it waits for rank 2, which never comes. Nobody knows how soon rank 1 has
// joined the store: it gets more time until it has.
TEST(NcclCommunicators, ARankThatIsKilledWhileTheyAreMadeIsNamedAtOnce) {
  setenv("TUTTI_STARTUP_TIMEOUT_MS", "10000", 1);
  std::string told = "deadline";
  for (useconds_t wait = 50'000; told.find("deadline") != std::string::npos && wait < 2'000'000;
       wait *= 2) {
    SharedId id;
    Processes ranks(2, [&](int rank) {
      ncclComm_t comm = nullptr;
      ncclConfig_t config = not_blocking();
      if (rank == 1) {
        expect_equal(ncclCommInitRankConfig(&comm, 3, id.of_rank(rank), rank, &config),
                     ncclInProgress, "the result");
        usleep(wait);
        raise(SIGKILL);
      }
      const ncclResult_t result = ncclCommInitRank(&comm, 3, id.of_rank(rank), rank);
      expect_equal(result, ncclRemoteError, "the result");
      throw std::runtime_error(ncclGetLastError(nullptr));
    });
    EXPECT_EQ(ranks.outcome(1), "ended by signal 9");
    told = ranks.outcome(0);
  }
  setenv("TUTTI_STARTUP_TIMEOUT_MS", "20000", 1);
  EXPECT_THAT(told, testing::HasSubstr("rank 1 "));
  EXPECT_THAT(told, testing::HasSubstr("has ended before it had joined the others"));
}

// The thread in which the last of them ended may still be on its way out, with what it holds.
void wait_until_one_thread_is_left() {
  for (int i = 0; i < 10'000 && entries("/proc/self/task") > 1; ++i) usleep(1000);
  expect_equal(entries("/proc/self/task"), std::size_t{1}, "the number of threads");
}

TEST(NcclCommunicators, ManyAfterEachOtherLeaveNoThreadDescriptorOrMemory) {
  Processes ranks(1, [](int) {
    const auto one = [] { InOneThread(2); };
    for (int warm = 0; warm < 20; ++warm) one();
    wait_until_one_thread_is_left();
    const std::size_t files = entries("/proc/self/fd");
    const long before = resident_kib();
    for (int i = 0; i < 100; ++i) one();
    wait_until_one_thread_is_left();
    expect_equal(entries("/proc/self/fd") <= files, true, "the number of descriptors");
    expect_equal(kKeepsFreedMemory || resident_kib() - before < 2048, true, "the memory");
  });
  EXPECT_EQ(ranks.outcome(0), "");
}

}  // namespace
}  // namespace tutti::test
