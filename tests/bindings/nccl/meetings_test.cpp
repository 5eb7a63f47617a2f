// Tests what happens where two things meet: groups over several communicators, and communicators
// that end, fail, or are still being made meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ranks.h"

namespace tutti::test {
namespace {

using RankBody = std::function<void(int rank, const ncclUniqueId& id)>;

// Runs two ranks as threads, which make and end their communicators themselves.
void two_ranks(const RankBody& body) {
  // No deadline ends a call that waits in vain: the watchdog reports it.
  setenv("TUTTI_TIMEOUT_MS", "3600000", 1);
  SharedId id;
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank, id.of_rank(rank));
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  setenv("TUTTI_TIMEOUT_MS", "20000", 1);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

void await(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::yield();  // The watchdog bounds it.
}

struct TwoComms {
  TwoComms(int rank, const ncclUniqueId& id) {
    CHECK_NCCL(ncclCommInitRank(&first, 2, id, rank));
    CHECK_NCCL(ncclCommSplit(first, 0, rank, &second, nullptr));
  }
  void abort() const {
    CHECK_NCCL(ncclCommAbort(first));
    CHECK_NCCL(ncclCommAbort(second));
  }
  ncclComm_t first = nullptr, second = nullptr;
  int sums[2] = {1, 1};  ///< In use until the communicators are aborted, whatever a group returns.
};

ncclResult_t sum_on_both(TwoComms& comms) {
  CHECK_NCCL(ncclGroupStart());
  CHECK_NCCL(
      ncclAllReduce(&comms.sums[0], &comms.sums[0], 1, ncclInt32, ncclSum, comms.first, nullptr));
  CHECK_NCCL(
      ncclAllReduce(&comms.sums[1], &comms.sums[1], 1, ncclInt32, ncclSum, comms.second, nullptr));
  return ncclGroupEnd();
}

TEST(NcclMeetings, AnAbortOfOneCommunicatorOfAGroupDoesNotWaitForTheOther) {
  std::atomic<bool> aborted{false};
  two_ranks([&](int rank, const ncclUniqueId& id) {
    TwoComms comms(rank, id);
    if (rank == 1) {  // It never makes the calls.
      await(aborted);
      return comms.abort();
    }
    ncclResult_t ended = ncclSuccess;
    std::thread group([&] { ended = sum_on_both(comms); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const ncclResult_t first = ncclCommAbort(comms.first);
    aborted = true;
    const ncclResult_t second = ncclCommAbort(comms.second);
    group.join();
    expect_equal(first, ncclSuccess, "the abort of the first");
    expect_equal(second, ncclSuccess, "the abort of the second");
    expect_equal(ended == ncclRemoteError || ended == ncclInvalidUsage, true, "the group's end");
  });
}

TEST(NcclMeetings, TheFirstErrorEndsAGroupThoughACommunicatorStillWaits) {
  std::atomic<bool> ended{false};
  two_ranks([&](int rank, const ncclUniqueId& id) {
    TwoComms comms(rank, id);
    if (rank == 1) {  // It calls the second one only once the other rank knows of the first.
      CHECK_NCCL(ncclCommAbort(comms.first));
      await(ended);
      CHECK_NCCL(ncclCommAbort(comms.second));
      return;
    }
    const ncclResult_t result = sum_on_both(comms);
    ended = true;
    comms.abort();
    expect_equal(result, ncclRemoteError, "the group's end");
  });
}

// The waits for a call over two communicators last 10 ms each, and some end just before the call.
TEST(NcclMeetings, AGroupDoesNotTakeTheEndOfItsOwnWaitForAnErrorOfTheCall) {
  two_ranks([](int rank, const ncclUniqueId& id) {
    const TwoComms comms(rank, id);
    const ncclComm_t sends = rank == 0 ? comms.first : comms.second;
    const ncclComm_t receives = rank == 0 ? comms.second : comms.first;
    const std::vector<int> input(20000, rank);
    std::vector<int> output(input.size());
    for (std::size_t count = 1; count <= input.size(); count += 100) {
      CHECK_NCCL(ncclGroupStart());
      CHECK_NCCL(ncclSend(input.data(), count, ncclInt32, 1 - rank, sends, nullptr));
      CHECK_NCCL(ncclRecv(output.data(), count, ncclInt32, 1 - rank, receives, nullptr));
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(9));
      const ncclResult_t result = ncclGroupEnd();
      if (result != ncclSuccess) comms.abort();  // The other rank may wait.
      check(result, "the group's end");
      expect_equal(output[count - 1], 1 - rank, "what was received");
    }
    CHECK_NCCL(ncclCommDestroy(comms.second));
    CHECK_NCCL(ncclCommDestroy(comms.first));
  });
}

TEST(NcclMeetings, ACallBehindASplitInAGroupComesBehindItOnAllRanks) {
  two_ranks([](int rank, const ncclUniqueId& id) {
    ncclConfig_t config = not_blocking();
    ncclComm_t comm = nullptr;
    expect_equal(ncclCommInitRankConfig(&comm, 2, id, rank, &config), ncclInProgress, "the start");
    CHECK_NCCL(settled(comm));
    for (int repeat = 0; repeat < 50; ++repeat) {
      int sum = 1;
      ncclComm_t part = nullptr;
      CHECK_NCCL(ncclGroupStart());
      CHECK_NCCL(ncclCommSplit(comm, 0, rank, &part, nullptr));
      CHECK_NCCL(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
      expect_equal(ncclGroupEnd(), ncclInProgress, "the group's end");
      CHECK_NCCL(settled(comm));
      CHECK_NCCL(settled(part));
      expect_equal(sum, 2, "the sum");
      CHECK_NCCL(ncclCommDestroy(part));
    }
    CHECK_NCCL(ncclCommDestroy(comm));
  });
}

TEST(NcclMeetings, AGroupThatFinalizesReturnsAtOnceWhereTheCommunicatorIsNotBlocking) {
  std::atomic<bool> returned{false};
  two_ranks([&](int rank, const ncclUniqueId& id) {
    ncclConfig_t config = not_blocking();
    ncclComm_t comm = nullptr;
    expect_equal(ncclCommInitRankConfig(&comm, 2, id, rank, &config), ncclInProgress, "the start");
    CHECK_NCCL(settled(comm));
    if (rank == 1) await(returned);
    int sum = 1;
    expect_equal(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, comm, nullptr), ncclInProgress,
                 "the call");
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclCommFinalize(comm));
    const ncclResult_t ended = ncclGroupEnd();
    returned = true;
    expect_equal(ended, ncclInProgress, "the group's end");
    CHECK_NCCL(settled(comm));
    expect_equal(sum, 2, "the sum");
    CHECK_NCCL(ncclCommDestroy(comm));
  });
}

// The thread that makes a communicator may be the last that has a share of it.
TEST(NcclMeetings, AnAbortByAnotherThreadAtOnceEndsAStart) {
  for (int round = 0; round < 40; ++round) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ncclConfig_t config = not_blocking();
    ncclComm_t comm = nullptr;
    const bool in_group = round % 2 == 0;
    if (in_group) ncclGroupStart();
    std::thread aborting([&] {
      ncclComm_t seen = nullptr;
      while ((seen = std::atomic_ref(comm).load()) == nullptr) std::this_thread::yield();
      EXPECT_EQ(ncclCommAbort(seen), ncclSuccess);
    });
    ncclCommInitRankConfig(&comm, 2, id, 0, &config);
    aborting.join();
    if (in_group) ncclGroupEnd();
  }
}

TEST(NcclMeetings, DestroyEndsAStartWhoseOtherRankNeverComes) {
  setenv("TUTTI_STARTUP_TIMEOUT_MS", "3600000", 1);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  for (const bool in_a_group : {false, true}) {
    ncclConfig_t config = not_blocking();
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, id, in_a_group ? 1 : 0, &config), ncclInProgress);
    if (in_a_group) ncclGroupStart();
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    if (in_a_group) {
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    }
  }
  setenv("TUTTI_STARTUP_TIMEOUT_MS", "20000", 1);
}

TEST(NcclMeetings, TheRootsBuffersOfABroadcastMayBeTheSameAndNotOverlapOtherwise) {
  InOneThread alone(1);
  std::vector<int> data(100);
  EXPECT_EQ(ncclBroadcast(data.data(), data.data(), 60, ncclInt32, 0, alone.comms[0], nullptr),
            ncclSuccess);
  for (const std::size_t to : {1, 40})
    EXPECT_EQ(
        ncclBroadcast(data.data(), data.data() + to, 60, ncclInt32, 0, alone.comms[0], nullptr),
        ncclInvalidUsage);
  EXPECT_EQ(ncclBroadcast(data.data(), data.data() + 40, 40, ncclInt32, 0, alone.comms[0], nullptr),
            ncclSuccess);
}

}  // namespace
}  // namespace tutti::test
