#include <tutti/persistent.h>

#include <string.h>

#include "calls.h"
#include "checks.h"

/* Runs all of them; or starts and awaits one after the other; or runs them in a group. */
enum Way { kRun, kStart, kGroup, kWays };

static const char* run_all(const tuttiPersistent_t* calls, int count, int way) {
  tuttiGroup_t group = NULL;
  if (way == kGroup) {
    OK(tuttiGroupCreate(&group));
    for (int i = 0; i < count; ++i) OK(tuttiPersistentAddTo(calls[i], group));
    OK(tuttiGroupEnd(group, NULL));
    OK(tuttiGroupFree(group));
    return NULL;
  }
  for (int i = 0; i < count; ++i) {
    if (way == kRun) {
      OK(tuttiPersistentRun(calls[i]));
      continue;
    }
    tuttiWork_t work = NULL;
    OK(tuttiPersistentStart(calls[i], &work));
    OK(tuttiWorkWait(work));
    OK(tuttiWorkFree(work));
  }
  return NULL;
}

const char* persistent_calls(tuttiComm_t comm) {
  int rank = -1, ranks = -1;
  OK(tuttiCommRank(comm, &rank));
  OK(tuttiCommSize(comm, &ranks));
  enum { kKinds = 9 };
  int32_t send[kMostRanks * kCount], recv[7][kMostRanks * kCount], buffer[kCount];
  tuttiPersistent_t calls[kKinds];
  OK(tuttiAllReduceInit(send, recv[0], kCount, tuttiInt32, tuttiSum, comm, NULL, &calls[0]));
  OK(tuttiReduceInit(send, recv[1], kCount, tuttiInt32, tuttiSum, 0, comm, NULL, &calls[1]));
  OK(tuttiBroadcastInit(buffer, kCount, tuttiInt32, 1, comm, NULL, &calls[2]));
  OK(tuttiAllGatherInit(send, recv[2], kCount, tuttiInt32, comm, NULL, &calls[3]));
  OK(tuttiReduceScatterInit(send, recv[3], kCount, tuttiInt32, tuttiSum, comm, NULL, &calls[4]));
  OK(tuttiGatherInit(send, recv[4], kCount, tuttiInt32, 0, comm, NULL, &calls[5]));
  OK(tuttiScatterInit(send, recv[5], kCount, tuttiInt32, 1, comm, NULL, &calls[6]));
  OK(tuttiAllToAllInit(send, recv[6], kCount, tuttiInt32, comm, NULL, &calls[7]));
  OK(tuttiBarrierInit(comm, NULL, &calls[8]));
  CHECK(tuttiCommDestroy(comm) == tuttiErrorUsage); /* they would outlive the communicator */
  for (int round = 0; round < kWays; ++round) {
    fill(send, rank, ranks);
    fill(buffer, rank, 1);
    memset(recv, 0, sizeof recv);
    const char* wrong = run_all(calls, kKinds, round);
    if (wrong != NULL) return wrong;
    CHECK(holds_sum(recv[0], ranks, 0));
    CHECK(rank != 0 || holds_sum(recv[1], ranks, 0));
    CHECK(holds(buffer, 1, 0));
    CHECK(holds(recv[2] + kCount, 1, 0));
    CHECK(holds_sum(recv[3], ranks, rank));
    CHECK(rank != 0 || holds(recv[4] + kCount, 1, 0));
    CHECK(holds(recv[5], 1, rank));
    CHECK(holds(recv[6] + kCount, 1, rank));
  }
  for (int i = 0; i < kKinds; ++i) OK(tuttiPersistentFree(calls[i]));
  return NULL;
}

/* Rank r has r + 1 elements. The lists of counts go out of scope before the calls are run. */
const char* persistent_blocks_of_different_lengths(tuttiComm_t comm) {
  int rank = -1, ranks = -1;
  OK(tuttiCommRank(comm, &rank));
  OK(tuttiCommSize(comm, &ranks));
  enum { kMost = kMostRanks * (kMostRanks + 1), kKinds = 5 };
  size_t counts[kMostRanks], displs[kMostRanks], mine[kMostRanks], places[kMostRanks], end = 0;
  for (int r = 0; r < ranks; ++r) {
    counts[r] = (size_t)r + 1;
    mine[r] = (size_t)rank + 1;
    places[r] = displs[r] = end;
    end += counts[r] + 1;
  }
  const size_t own = counts[rank];
  const int is_root = rank == 1;
  int32_t send[kMost], recv[kKinds][kMost];
  tuttiPersistent_t calls[kKinds];
  OK(tuttiAllGatherVInit(send, recv[0], counts, displs, tuttiInt32, comm, NULL, &calls[0]));
  OK(tuttiReduceScatterVInit(send, recv[1], counts, displs, tuttiInt32, tuttiMax, comm, NULL,
                             &calls[1]));
  OK(tuttiGatherVInit(send, own, recv[2], is_root ? counts : NULL, NULL, tuttiInt32, 1, comm, NULL,
                      &calls[2]));
  OK(tuttiScatterVInit(send, is_root ? counts : NULL, is_root ? displs : NULL, recv[3], own,
                       tuttiInt32, 1, comm, NULL, &calls[3]));
  OK(tuttiAllToAllVInit(send, counts, displs, recv[4], mine, NULL, tuttiInt32, comm, NULL,
                        &calls[4]));
  memset(counts, 0xff, sizeof counts);
  memset(displs, 0xff, sizeof displs);
  memset(mine, 0xff, sizeof mine);
  for (int round = 0; round < kWays; ++round) {
    for (int i = 0; i < kMost; ++i) send[i] = 1000 * round + 100 * rank + i;
    memset(recv, 0xff, sizeof recv);
    const char* wrong = run_all(calls, kKinds, round);
    if (wrong != NULL) return wrong;
    for (int r = 0; r < ranks; ++r) {
      CHECK(recv[0][places[r]] == 1000 * round + 100 * r);
      CHECK(recv[0][places[r] + (size_t)r] == 1000 * round + 100 * r + r);
      CHECK(recv[0][places[r] + (size_t)r + 1] == -1);
      CHECK(recv[4][r * (rank + 1)] == 1000 * round + 100 * r + (int32_t)places[rank]);
    }
    CHECK(recv[1][rank] == 1000 * round + 100 * (ranks - 1) + (int32_t)places[rank] + rank);
    CHECK(!is_root || (recv[2][0] == 1000 * round && recv[2][2] == 1000 * round + 101));
    CHECK(recv[3][rank] == 1000 * round + 100 + (int32_t)places[rank] + rank);
  }
  for (int i = 0; i < kKinds; ++i) OK(tuttiPersistentFree(calls[i]));
  return NULL;
}

/* Around the ring, each rank sends a message to the next one. */
const char* persistent_sends_and_receives(tuttiComm_t comm) {
  int rank = -1, ranks = -1;
  OK(tuttiCommRank(comm, &rank));
  OK(tuttiCommSize(comm, &ranks));
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  int32_t sent[kCount], got[kCount + 1];
  tuttiReceived_t received = {-9, -9, 99};
  tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
  options.received = &received;
  tuttiPersistent_t send = NULL, recv = NULL;
  OK(tuttiSendInit(sent, kCount, tuttiInt32, next, 3, comm, NULL, &send));
  OK(tuttiRecvInit(got, kCount + 1, tuttiInt32, previous, 3, comm, &options, &recv));
  for (int round = 0; round < kWays; ++round) {
    fill(sent, rank, 1);
    memset(got, 0, sizeof got);
    received.count = 99;
    tuttiWork_t work = NULL;
    OK(tuttiPersistentStart(recv, &work));
    OK(tuttiPersistentRun(send));
    OK(tuttiWorkWait(work));
    OK(tuttiWorkFree(work));
    CHECK(holds(got, previous, 0));
    CHECK(received.source == previous && received.tag == 3 && received.count == kCount);
  }
  OK(tuttiPersistentFree(send));
  OK(tuttiPersistentFree(recv));
  CHECK(tuttiSendInit(sent, kCount, tuttiInt32, ranks, 3, comm, NULL, &send) == tuttiErrorUsage);
  CHECK(send == NULL);
  return NULL;
}
