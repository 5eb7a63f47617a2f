// Communicators that are destroyed, aborted or inherited by a fork while other threads, groups and
// communicators that are being made of them still use them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "ranks.h"

namespace tutti::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

ncclResult_t add_one(ncclComm_t comm) {
  int value = 1, result = 0;
  return ncclAllReduce(&value, &result, 1, ncclInt32, ncclSum, comm, nullptr);
}

TEST(NcclLifetime, AHandleThatWasDestroyedIsRefusedEverywhere) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  ASSERT_EQ(ncclCommDestroy(comm), ncclSuccess);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
  EXPECT_EQ(ncclCommAbort(comm), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclInvalidArgument);
  EXPECT_EQ(add_one(comm), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(comm), HasSubstr("has been destroyed"));
}

TEST(NcclLifetime, OneOfTwoThreadsDestroysACommunicator) {
  for (int round = 0; round < 50; ++round) {
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
    ncclResult_t first = ncclSuccess;
    std::thread other([&] { first = ncclCommDestroy(comm); });
    const ncclResult_t second = ncclCommDestroy(comm);
    other.join();
    EXPECT_EQ(std::min(first, second), ncclSuccess);
    EXPECT_EQ(std::max(first, second), ncclInvalidArgument);
  }
}

TEST(NcclLifetime, AbortIsSafeWhileOtherThreadsCallAndAskForTheError) {
  for (int round = 0; round < 300; ++round) {
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
    std::atomic<int> calls{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&] {
        while (add_one(comm) == ncclSuccess) ++calls;
      });
    threads.emplace_back([&] {
      ncclResult_t state = ncclSuccess;
      while (ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclSuccess)
        ncclGetLastError(comm);
    });
    while (calls < 50) std::this_thread::yield();
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(NcclLifetime, APartIsMadeOnAllRanksThoughTheirParentIsDestroyedOrAborted) {
  for (const bool aborts : {false, true})
    for (int round = 0; round < 20; ++round) {
      SharedId id;
      std::vector<std::thread> threads;
      std::vector<ncclResult_t> states(2, ncclInternalError);
      for (int rank = 0; rank < 2; ++rank)
        threads.emplace_back([&, rank] {
          ncclComm_t comm = nullptr, part = nullptr;
          ncclConfig_t config = not_blocking();
          ASSERT_EQ(ncclCommInitRank(&comm, 2, id.of_rank(rank), rank), ncclSuccess);
          ASSERT_EQ(ncclCommSplit(comm, 0, rank, &part, &config), ncclInProgress);
          EXPECT_EQ(aborts ? ncclCommAbort(comm) : ncclCommDestroy(comm), ncclSuccess);
          const ncclResult_t state = settled(part);
          states[static_cast<std::size_t>(rank)] = state;
          EXPECT_EQ(state == ncclSuccess ? ncclCommDestroy(part) : ncclCommAbort(part),
                    ncclSuccess);
        });
      for (std::thread& thread : threads) thread.join();
      for (const ncclResult_t state : states)
        EXPECT_TRUE(state == ncclSuccess || (aborts && state == ncclRemoteError)) << state;
    }
}

TEST(NcclLifetime, ARankThatGetsNoPartMayAskForTheStateOfItsParent) {
  ncclComm_t comm = nullptr, part = nullptr;
  ncclConfig_t config = not_blocking();
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInProgress);
  ASSERT_EQ(settled(comm), ncclSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(ncclCommSplit(comm, -1, 0, &part, nullptr), ncclSuccess);
  EXPECT_EQ(part, nullptr);
  std::atomic<bool> ended{false};
  std::thread watchdog([&] {
    while (!ended) {
      ncclResult_t now = ncclSuccess;
      std::uint64_t bytes = 0;
      ncclCommGetAsyncError(comm, &now);
      ncclCommMemStats(comm, ncclStatGpuMemTotal, &bytes);
      ncclGetLastError(comm);
    }
  });
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  EXPECT_EQ(settled(comm), ncclSuccess);
  ended = true;
  watchdog.join();
  EXPECT_EQ(part, nullptr);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// Begins a group of rank 0 of two in a thread, and aborts its communicator from this one.
void abort_in_a_group(bool other_comes, int yields) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = not_blocking();
  ncclComm_t other = nullptr, comm = nullptr;
  if (other_comes) {
    ASSERT_EQ(ncclCommInitRankConfig(&other, 2, id, 1, &config), ncclInProgress);
  }
  std::atomic<ncclComm_t> handle{nullptr};
  std::thread maker([&] {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclSuccess);
    handle = comm;
    const ncclResult_t result = ncclGroupEnd();
    int size = 0;
    EXPECT_EQ(comm == nullptr, result != ncclSuccess) << result;
    if (!other_comes) {
      EXPECT_EQ(result, ncclRemoteError);
    }
    if (comm != nullptr) {  // It was aborted after the group had ended, or will be at once.
      EXPECT_THAT(ncclCommCount(comm, &size), AnyOf(ncclSuccess, ncclInvalidArgument));
    }
  });
  while (handle == nullptr) std::this_thread::yield();
  for (int i = 0; i < yields; ++i) std::this_thread::yield();
  EXPECT_THAT(ncclCommAbort(handle), AnyOf(ncclSuccess, ncclInvalidArgument));
  maker.join();
  if (other_comes) {
    EXPECT_EQ(ncclCommAbort(other), ncclSuccess);
  }
}

TEST(NcclLifetime, AbortEndsWhatTheGroupOfAnotherThreadMakes) {
  for (const int yields : {0, 100, 10'000}) abort_in_a_group(false, yields);
  for (int yields = 0; yields < 4000; yields += 100) abort_in_a_group(true, yields);
}

TEST(NcclLifetime, AnIdWhoseStoreHasEndedIsARemoteError) {
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
  ASSERT_EQ(ncclCommDestroy(comm), ncclSuccess);
  // The server's thread ends a little later. Until then it tells that the rank has come before, or
  // takes it for a new one where it has deleted the keys of those that have left.
  const ncclResult_t again = ncclCommInitRank(&comm, 1, id, 0);
  EXPECT_THAT(again, AnyOf(ncclRemoteError, ncclInvalidUsage, ncclSuccess))
      << ncclGetLastError(nullptr);
  if (again == ncclSuccess) {
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  SharedId dead;
  Processes ranks(1, [&](int) { dead.of_rank(0); });
  EXPECT_EQ(ranks.outcome(0), "");
  EXPECT_EQ(ncclCommInitRank(&comm, 2, dead.get(), 1), ncclRemoteError);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("has ended"));
}

// It is aborted before the end of its group, and so before it has reached the store. Where the
// other one had not reached it either, the store ends with the abort: then that one gets more time.
TEST(NcclLifetime, ARankThatIsAbortedBeforeItComesIsNamedToTheOthers) {
  std::string told = "all that had connected have left";
  for (useconds_t head_start = 0;
       told.find("all that had connected have left") != std::string::npos && head_start < 1'000'000;
       head_start = 2 * head_start + 1000) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ncclComm_t comm = nullptr, other = nullptr;
    ncclConfig_t config = not_blocking();
    ASSERT_EQ(ncclCommInitRankConfig(&other, 2, id, 1, &config), ncclInProgress);
    usleep(head_start);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclSuccess);
    std::thread([&] { EXPECT_EQ(ncclCommAbort(comm), ncclSuccess); }).join();
    EXPECT_EQ(ncclGroupEnd(), ncclRemoteError);
    EXPECT_EQ(comm, nullptr);
    EXPECT_EQ(settled(other), ncclRemoteError);
    told = ncclGetLastError(other);
    EXPECT_EQ(ncclCommAbort(other), ncclSuccess);
  }
  EXPECT_THAT(told, HasSubstr("rank 0 was aborted"));
}

// The process of the store answers nothing. The deadline is ten minutes, for which no test waits.
TEST(NcclLifetime, AbortEndsAStartWhoseStoreIsFrozen) {
  SharedId id, frozen;
  Processes ranks(2, [&](int rank) {
    setenv("TUTTI_STARTUP_TIMEOUT_MS", "600000", 1);
    ncclComm_t comm = nullptr, part = nullptr;
    CHECK_NCCL(ncclCommInitRank(&comm, 2, id.of_rank(rank), rank));
    CHECK_NCCL(add_one(comm));
    if (rank == 0) raise(SIGSTOP);
    frozen.get();
    CHECK_NCCL(ncclCommRevoke(comm, 0));
    ncclConfig_t config = not_blocking();
    expect_equal(ncclCommSplit(comm, 0, 0, &part, &config), ncclInProgress, "the split");
    CHECK_NCCL(ncclCommAbort(part));
    CHECK_NCCL(ncclCommAbort(comm));
  });
  int status = 0;
  ASSERT_EQ(waitpid(ranks.pid(0), &status, WUNTRACED), ranks.pid(0));
  ASSERT_TRUE(WIFSTOPPED(status));
  frozen.set({});
  EXPECT_EQ(ranks.outcome(1), "");
}

// Returns the number of the first call that is not refused as it must be, else 0.
int use_inherited(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  ncclRedOp_t op = ncclSum;
  ncclComm_t part = nullptr;
  ncclUniqueId id;
  void* handle = nullptr;
  int number = 1;
  if (add_one(comm) != ncclInvalidUsage) return 1;
  if (ncclCommGetAsyncError(comm, &state) != ncclInvalidUsage) return 2;
  if (ncclRedOpDestroy(op, comm) != ncclInvalidUsage) return 3;
  if (ncclCommSplit(comm, 0, 0, &part, nullptr) != ncclInvalidUsage) return 4;
  if (ncclCommShrink(comm, &number, 1, &part, nullptr, 1) != ncclInvalidUsage) return 5;
  if (ncclCommRevoke(comm, 0) != ncclInvalidUsage) return 6;
  if (ncclCommRegister(comm, &number, 4, &handle) != ncclInvalidUsage) return 7;
  if (ncclCommDeregister(comm, &number) != ncclInvalidUsage) return 8;
  if (ncclCommGetUniqueId(comm, &id) != ncclInvalidUsage) return 9;
  if (ncclCommFinalize(comm) != ncclInvalidUsage) return 10;
  ncclGetLastError(comm);
  if (ncclCommDestroy(comm) != ncclSuccess) return 11;
  return ncclCommDestroy(comm) == ncclInvalidArgument ? 0 : 12;
}

TEST(NcclLifetime, AChildOfAProcessWhoseThreadIsInACallIsRefused) {
  SharedId forked;
  in_processes(2, [&](ncclComm_t comm, int rank, int) {
    int value = 1;
    CHECK_NCCL(add_one(comm));
    if (rank == 1) {
      forked.get();
      CHECK_NCCL(ncclSend(&value, 1, ncclInt32, 0, comm, nullptr));
      return;
    }
    ncclResult_t result = ncclInternalError;
    std::thread caller([&] { result = ncclRecv(&value, 1, ncclInt32, 1, comm, nullptr); });
    usleep(20'000);  // The child is refused whether the call has begun to wait or not.
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      _exit(use_inherited(comm));
    }
    int status = -1;
    waitpid(child, &status, 0);
    forked.set({});
    caller.join();
    expect_equal(status, 0, "the end of the child");
    CHECK_NCCL(result);
  });
}

// Threads of the process get so large a stack that none can be made.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << 50);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

// It is the last one, since the thread of an id that nobody uses stays, and ranks are forked from a
// process without threads.
TEST(NcclLifetime, WithoutThreadsAStartAndAnEndAreSystemErrors) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<ncclComm_t> comms(2);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank)
    ASSERT_EQ(ncclCommInitRank(&comms[static_cast<std::size_t>(rank)], 2, id, rank), ncclSuccess);
  {
    const NoThreads none;
    EXPECT_EQ(ncclGroupEnd(), ncclSystemError);
  }
  EXPECT_THAT(comms, testing::Each(nullptr));
  ncclComm_t comm = nullptr;
  ncclConfig_t config = not_blocking();
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInProgress);
  ASSERT_EQ(settled(comm), ncclSuccess);
  {
    const NoThreads none;
    EXPECT_EQ(ncclCommFinalize(comm), ncclSystemError);
  }
  EXPECT_EQ(settled(comm), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
  EXPECT_EQ(settled(comm), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

}  // namespace
}  // namespace tutti::test
