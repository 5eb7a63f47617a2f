// Tests communicators of NCCL programs that are split off, also those that do not block.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "ranks.h"

namespace tutti::test {
namespace {

TEST(NcclSplits, SplitGivesTheRanksOfEachColorInTheOrderOfTheirKeys) {
  in_processes(4, [](ncclComm_t comm, int rank, int size) {
    ncclComm_t half = nullptr, none = comm;
    CHECK_NCCL(ncclCommSplit(comm, rank % 2, -rank, &half, nullptr));
    expect_equal(size_of_comm(half), 2, "the size of a half");
    expect_equal(rank_of(half), rank < 2 ? 1 : 0, "the rank in a half");
    expect_equal(sum(half, rank), rank % 2 == 0 ? 2 : 4, "the sum of a half");
    CHECK_NCCL(ncclCommSplit(comm, rank == 0 ? 5 : -1, 0, &none, nullptr));
    expect_equal(none == nullptr, rank != 0, "whether a rank without a color gets none");
    ncclComm_t quarter = nullptr;
    CHECK_NCCL(ncclCommSplit(half, rank_of(half), 0, &quarter, nullptr));
    expect_equal(sum(quarter, 7), 7, "the sum of a rank alone");
    CHECK_NCCL(ncclCommDestroy(comm == nullptr ? comm : quarter));
    CHECK_NCCL(ncclCommDestroy(half));
    CHECK_NCCL(ncclCommDestroy(none));
    expect_equal(sum(comm, 1), size, "the sum of all, when the parts are gone");
  });
}

TEST(NcclSplits, AGroupSplitsAllCommunicatorsOfAThread) {
  InOneThread ranks(4);
  std::vector<ncclComm_t> parts(4);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 4; ++rank)
    ASSERT_EQ(ncclCommSplit(ranks.comms[static_cast<std::size_t>(rank)], rank / 2, 0,
                            &parts[static_cast<std::size_t>(rank)], nullptr),
              ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  for (std::size_t rank = 0; rank < 4; ++rank) EXPECT_EQ(rank_of(parts[rank]), rank % 2);
  for (ncclComm_t part : parts) EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
}

// The threads that make them would otherwise take different orders on different ranks.
TEST(NcclSplits, PartsOfOneParentAreMadeInTheOrderOfTheProgram) {
  in_processes(3, [](ncclComm_t comm, int rank, int) {
    constexpr std::size_t kParts = 12;
    for (int round = 0; round < 20; ++round) {
      const int blocking = round % 2;
      ncclConfig_t config;
      config.blocking = blocking;
      std::vector<ncclComm_t> parts(kParts);
      if (blocking == 1) CHECK_NCCL(ncclGroupStart());
      for (std::size_t i = 0; i < kParts; ++i)
        expect_equal(
            ncclCommSplit(comm, (rank + static_cast<int>(i)) % 2, rank, &parts[i], &config),
            blocking == 1 ? ncclSuccess : ncclInProgress, "a split");
      if (blocking == 1) CHECK_NCCL(ncclGroupEnd());
      expect_equal(sum(comm, 1), 3, "a call of the parent behind them");
      for (std::size_t i = 0; i < kParts; ++i) {
        expect_equal(settled(parts[i]), ncclSuccess, "the state of a part");
        const int members = (rank + static_cast<int>(i)) % 2 == static_cast<int>(i) % 2 ? 2 : 1;
        expect_equal(size_of_comm(parts[i]), members, "the size of a part");
      }
      for (ncclComm_t part : parts) CHECK_NCCL(ncclCommDestroy(part));
    }
  });
}

TEST(NcclSplits, AbortEndsASplitForWhichAnotherRankNeverComes) {
  in_processes(2, [](ncclComm_t comm, int rank, int) {
    sum(comm, 1);
    int value = 1;
    if (rank == 1) {
      expect_equal(ncclRecv(&value, 1, ncclInt32, 0, comm, nullptr), ncclRemoteError, "a receive");
      const std::string why = ncclGetLastError(comm);
      expect_equal(why.find("ncclCommAbort was called") != std::string::npos, true, why);
      return;
    }
    ncclConfig_t config;
    config.blocking = 0;
    ncclComm_t part = nullptr;
    expect_equal(ncclCommSplit(comm, 0, 0, &part, &config), ncclInProgress, "a split");
    CHECK_NCCL(ncclCommAbort(part));
  });
}

// Makes two ranks of this thread that do not block.
std::array<ncclComm_t, 2> two_not_blocking() {
  ncclUniqueId id;
  CHECK_NCCL(ncclGetUniqueId(&id));
  std::array<ncclComm_t, 2> comms{};
  ncclConfig_t config = not_blocking();
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(ncclCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], 2, id, rank, &config),
              ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(settled(comm), ncclSuccess);
  return comms;
}

TEST(NcclSplits, SeveralWithoutAColorAreOneGroup) {
  const std::array<ncclComm_t, 2> comms = two_not_blocking();
  std::array<ncclComm_t, 2> none{}, parts{};
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (ncclComm_t& each : none)
    EXPECT_EQ(ncclCommSplit(comms[0], -1, 0, &each, nullptr), ncclSuccess);
  for (ncclComm_t& each : parts)
    EXPECT_EQ(ncclCommSplit(comms[1], 0, 0, &each, nullptr), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress) << "it waits for ranks that it is to begin";
  for (ncclComm_t comm : {comms[0], comms[1], parts[0], parts[1]})
    EXPECT_EQ(settled(comm), ncclSuccess);
  for (ncclComm_t comm : {comms[0], comms[1], parts[0], parts[1]})
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST(NcclSplits, FinalizeBehindOneWithoutAColorReturnsAtOnce) {
  const std::array<ncclComm_t, 2> comms = two_not_blocking();
  ncclComm_t none = nullptr, part = nullptr;
  EXPECT_EQ(ncclCommSplit(comms[0], -1, 0, &none, nullptr), ncclInProgress);
  EXPECT_EQ(ncclCommFinalize(comms[0]), ncclInProgress);
  EXPECT_EQ(ncclCommSplit(comms[1], 0, 0, &part, nullptr), ncclInProgress);
  for (ncclComm_t comm : {comms[0], comms[1], part}) EXPECT_EQ(settled(comm), ncclSuccess);
  for (ncclComm_t comm : {comms[0], comms[1], part}) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST(NcclSplits, OneWithoutAColorThatFailsIsToldByItsParentAlsoWhereThatIsRevoked) {
  constexpr const char* kLimit = "TUTTI_STARTUP_TIMEOUT_MS";
  const char* const before = std::getenv(kLimit);
  const std::string old = before == nullptr ? "" : before;
  setenv(kLimit, "2000", 1);
  const std::array<ncclComm_t, 2> comms = two_not_blocking();
  before == nullptr ? unsetenv(kLimit) : setenv(kLimit, old.c_str(), 1);
  std::thread other([&] { EXPECT_EQ(ncclCommRevoke(comms[1], 0), ncclSuccess); });
  EXPECT_EQ(ncclCommRevoke(comms[0], 0), ncclSuccess);
  other.join();
  ncclComm_t none = nullptr;
  EXPECT_EQ(ncclCommSplit(comms[0], -1, 0, &none, nullptr), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comms[0], &state), ncclSuccess);
  EXPECT_EQ(state, ncclInProgress);
  EXPECT_EQ(settled(comms[0]), ncclRemoteError) << "the other rank never calls it";
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST(NcclSplits, OneWithoutAColorIsWaitedForByItsParent) {
  for (const bool in_group : {false, true}) {
    const std::array<ncclComm_t, 2> comms = two_not_blocking();
    ncclComm_t none = comms[0], part = nullptr;
    if (in_group) ncclGroupStart();
    EXPECT_EQ(ncclCommSplit(comms[0], -1, 0, &none, nullptr),
              in_group ? ncclSuccess : ncclInProgress);
    EXPECT_EQ(none, nullptr);
    if (in_group) {
      EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    }
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(comms[0], &state), ncclSuccess);
    EXPECT_EQ(state, ncclInProgress) << "the other rank has not called";
    EXPECT_EQ(ncclCommSplit(comms[1], 3, 0, &part, nullptr), ncclInProgress);
    for (ncclComm_t comm : {comms[0], comms[1], part}) EXPECT_EQ(settled(comm), ncclSuccess);
    int size = 0;
    EXPECT_EQ(ncclCommCount(part, &size), ncclSuccess);
    EXPECT_EQ(size, 1);
    for (ncclComm_t comm : {part, comms[0], comms[1]})
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
}

TEST(NcclSplits, AbortEndsASplitWithoutAColor) {
  in_threads(2, [](ncclComm_t comm, int rank, int) {
    ncclConfig_t config = not_blocking();
    ncclComm_t parent = nullptr, none = nullptr;
    expect_equal(ncclCommSplit(comm, 0, 0, &parent, &config), ncclInProgress, "a parent");
    expect_equal(settled(parent), ncclSuccess, "the parent when it is there");
    if (rank == 0)
      expect_equal(ncclCommSplit(parent, -1, 0, &none, nullptr), ncclInProgress, "no part");
    CHECK_NCCL(ncclCommAbort(parent));
  });
}

TEST(NcclSplits, OnesThatDoNotBlockSayInProgressUntilTheyAreThere) {
  in_threads(2, [](ncclComm_t comm, int rank, int) {
    ncclConfig_t config;
    config.blocking = 0;
    ncclComm_t part = nullptr;
    expect_equal(ncclCommSplit(comm, 0, 0, &part, &config), ncclInProgress, "a split");
    expect_equal(settled(part), ncclSuccess, "the split when it is there");
    int value = rank + 1, result = 0;
    const ncclResult_t called =
        ncclAllReduce(&value, &result, 1, ncclInt32, ncclSum, part, nullptr);
    expect_equal(called == ncclInProgress || called == ncclSuccess, true, "a call that may wait");
    expect_equal(settled(part), ncclSuccess, "the call when it has ended");
    expect_equal(result, 3, "the sum");
    ncclGroupStart();
    ncclAllReduce(&value, &result, 1, ncclInt32, ncclProd, part, nullptr);
    expect_equal(ncclGroupEnd(), ncclInProgress, "the end of a group");
    expect_equal(settled(part), ncclSuccess, "the group when it has ended");
    expect_equal(result, 2, "the product");
    expect_equal(ncclCommFinalize(part), ncclInProgress, "the beginning of the end");
    expect_equal(settled(part), ncclSuccess, "the end");
    CHECK_NCCL(ncclCommDestroy(part));
  });
}

}  // namespace
}  // namespace tutti::test
