#include "calls.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/persistent.h>

#include "checks.h"

const char* reductions_and_broadcast(tuttiComm_t comm) {
  int rank = -1, ranks = -1;
  OK(tuttiCommRank(comm, &rank));
  OK(tuttiCommSize(comm, &ranks));
  int32_t send[kMostRanks * kCount], recv[kMostRanks * kCount];
  fill(send, rank, ranks);

  OK(tuttiAllReduce(send, recv, kCount, tuttiInt32, tuttiSum, comm, NULL, NULL));
  CHECK(holds_sum(recv, ranks, 0));
  CHECK(holds(send, rank, 0));
  for (int root = 0; root < ranks; ++root) {
    int32_t* to = rank == root ? recv : NULL;
    OK(tuttiReduce(send, to, kCount, tuttiInt32, tuttiMax, root, comm, NULL, NULL));
    CHECK(to == NULL || holds(to, ranks - 1, 0));
    memcpy(recv, send, sizeof send);
    OK(tuttiBroadcast(recv, kCount, tuttiInt32, root, comm, NULL, NULL));
    CHECK(holds(recv, root, 0));
  }
  OK(tuttiReduceScatter(send, recv, kCount, tuttiInt32, tuttiSum, comm, NULL, NULL));
  CHECK(holds_sum(recv, ranks, rank));
  OK(tuttiAllReduce(send, send, kCount, tuttiInt32, tuttiSum, comm, NULL, NULL));
  CHECK(holds_sum(send, ranks, 0));
  return NULL;
}

const char* gathers_and_scatters(tuttiComm_t comm) {
  int rank = -1, ranks = -1;
  OK(tuttiCommRank(comm, &rank));
  OK(tuttiCommSize(comm, &ranks));
  int32_t send[kMostRanks * kCount], recv[kMostRanks * kCount];
  fill(send, rank, ranks);

  OK(tuttiAllGather(send, recv, kCount, tuttiInt32, comm, NULL, NULL));
  for (int from = 0; from < ranks; ++from) CHECK(holds(recv + from * kCount, from, 0));
  OK(tuttiAllToAll(send, recv, kCount, tuttiInt32, comm, NULL, NULL));
  for (int from = 0; from < ranks; ++from) CHECK(holds(recv + from * kCount, from, rank));
  for (int root = 0; root < ranks; ++root) {
    const int is_root = rank == root;
    OK(tuttiGather(send, is_root ? recv : NULL, kCount, tuttiInt32, root, comm, NULL, NULL));
    for (int from = 0; is_root && from < ranks; ++from) CHECK(holds(recv + from * kCount, from, 0));
    OK(tuttiScatter(is_root ? send : NULL, recv, kCount, tuttiInt32, root, comm, NULL, NULL));
    CHECK(holds(recv, root, rank));
  }
  OK(tuttiBarrier(comm, NULL, NULL));
  return NULL;
}

/* Rank r contributes r + 1 elements, and the blocks lie one element apart. */
const char* blocks_of_different_lengths(tuttiComm_t comm) {
  int rank = -1, ranks = -1;
  OK(tuttiCommRank(comm, &rank));
  OK(tuttiCommSize(comm, &ranks));
  enum { kMost = kMostRanks * (kMostRanks + 1) };
  size_t counts[kMostRanks], displs[kMostRanks], mine[kMostRanks], end = 0;
  for (int r = 0; r < ranks; ++r) {
    counts[r] = (size_t)r + 1;
    mine[r] = (size_t)rank + 1;
    displs[r] = end;
    end += counts[r] + 1;
  }
  int32_t send[kMost], recv[kMost];
  for (int i = 0; i < kMost; ++i) send[i] = 100 * rank + i;

  memset(recv, 0xff, sizeof recv);
  OK(tuttiAllGatherV(send, recv, counts, displs, tuttiInt32, comm, NULL, NULL));
  for (int r = 0; r < ranks; ++r) {
    CHECK(recv[displs[r]] == 100 * r && recv[displs[r] + counts[r] - 1] == 100 * r + r);
    CHECK(recv[displs[r] + counts[r]] == -1);
  }
  tuttiWork_t work = NULL;
  OK(tuttiReduceScatterV(send, recv, counts, displs, tuttiInt32, tuttiMax, comm, NULL, &work));
  OK(tuttiWorkWait(work));
  OK(tuttiWorkFree(work));
  CHECK(recv[rank] == 100 * (ranks - 1) + (int32_t)displs[rank] + rank);
  const int is_root = rank == 1;
  OK(tuttiGatherV(send, counts[rank], is_root ? recv : NULL, is_root ? counts : NULL, NULL,
                  tuttiInt32, 1, comm, NULL, NULL));
  CHECK(!is_root || (recv[0] == 0 && recv[1] == 100 && recv[2] == 101));
  OK(tuttiScatterV(is_root ? send : NULL, is_root ? counts : NULL, is_root ? displs : NULL, recv,
                   counts[rank], tuttiInt32, 1, comm, NULL, NULL));
  CHECK(recv[rank] == 100 + (int32_t)displs[rank] + rank);
  OK(tuttiAllToAllV(send, counts, displs, recv, mine, NULL, tuttiInt32, comm, NULL, NULL));
  for (int r = 0; r < ranks; ++r) CHECK(recv[r * (rank + 1)] == 100 * r + (int32_t)displs[rank]);
  CHECK(tuttiAllGatherV(send, recv, NULL, NULL, tuttiInt32, comm, NULL, NULL) == tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "counts") != NULL);
  return NULL;
}

/* All ranks except rank 0 send to it, and it answers each. */
const char* sends_and_receives(tuttiComm_t comm) {
  int rank = -1, ranks = -1;
  OK(tuttiCommRank(comm, &rank));
  OK(tuttiCommSize(comm, &ranks));
  int32_t data[kCount];
  if (rank != 0) {
    tuttiWork_t work = NULL;
    OK(tuttiRecv(data, kCount, tuttiInt32, 0, 7, comm, NULL, &work));
    int32_t mine[kCount];
    fill(mine, rank, 1);
    OK(tuttiSend(mine, 2, tuttiInt32, 0, rank, comm, NULL, NULL));
    OK(tuttiWorkWait(work));
    OK(tuttiWorkFree(work));
    CHECK(holds(data, 0, 0));
    return NULL;
  }
  for (int i = 1; i < ranks; ++i) {
    tuttiReceived_t got = {-9, -9, 99};
    tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
    options.received = &got;
    OK(tuttiRecv(data, kCount, tuttiInt32, TUTTI_ANY_SOURCE, TUTTI_ANY_TAG, comm, &options, NULL));
    CHECK(got.count == 2 && got.source == got.tag);
    CHECK(data[0] == element(got.source, 0, 0) && data[1] == element(got.source, 0, 1));
    fill(data, 0, 1);
    OK(tuttiSend(data, kCount, tuttiInt32, got.source, 7, comm, NULL, NULL));
  }
  CHECK(tuttiSend(data, kCount, tuttiInt32, ranks, 7, comm, NULL, NULL) == tuttiErrorUsage);
  CHECK(tuttiRecv(data, kCount, tuttiInt32, 1, -5, comm, NULL, NULL) == tuttiErrorUsage);
  return NULL;
}

/* Around the ring, each rank sends before it receives. The messages are too long to be kept as
   unexpected messages. */
const char* groups_of_calls(tuttiComm_t comm) {
  enum { kLong = 100000 };
  int rank = -1, ranks = -1;
  OK(tuttiCommRank(comm, &rank));
  OK(tuttiCommSize(comm, &ranks));
  int32_t* send = calloc(2 * kLong, sizeof *send);
  CHECK(send != NULL);
  int32_t *recv = send + kLong, all = 0;
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
  OK(tuttiGroupCreate(&options.group));
  for (int round = 0; round < 2; ++round) {
    send[kLong - 1] = 10 * rank + round;
    OK(tuttiSend(send, kLong, tuttiInt32, next, 0, comm, &options, NULL));
    OK(tuttiAllReduce(&rank, &all, 1, tuttiInt32, tuttiMax, comm, &options, NULL));
    OK(tuttiRecv(recv, kLong, tuttiInt32, previous, 0, comm, &options, NULL));
    tuttiWork_t work = NULL;
    OK(tuttiGroupEnd(options.group, round == 0 ? NULL : &work));
    if (round == 1) OK(tuttiWorkWait(work));
    OK(tuttiWorkFree(work));
    CHECK(recv[kLong - 1] == 10 * previous + round);
    CHECK(all == ranks - 1);
  }
  /* This communicator is destroyed before the end of the group that has a call of it. */
  tuttiComm_t dup = NULL;
  OK(tuttiCommDup(comm, &dup));
  OK(tuttiBarrier(comm, &options, NULL));
  OK(tuttiBarrier(dup, &options, NULL));
  OK(tuttiCommDestroy(dup));
  CHECK(tuttiGroupEnd(options.group, NULL) == tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "one of its 2 calls was destroyed") != NULL);
  OK(tuttiAllReduce(&rank, &all, 1, tuttiInt32, tuttiMin, comm, &options, NULL));
  OK(tuttiGroupEnd(options.group, NULL));
  CHECK(all == 0);

  OK(tuttiGroupFree(options.group));
  OK(tuttiGroupFree(NULL));
  CHECK(tuttiGroupEnd(NULL, NULL) == tuttiErrorUsage);
  free(send);
  return NULL;
}

const char* asynchronous_calls(tuttiComm_t comm) {
  int rank = -1, ranks = -1, done = 0;
  OK(tuttiCommRank(comm, &rank));
  OK(tuttiCommSize(comm, &ranks));
  int32_t send[kMostRanks * kCount], recv[6][kMostRanks * kCount], buffer[kCount];
  fill(send, rank, ranks);
  fill(buffer, rank, 1);
  tuttiWork_t works[9];
  memset(works, 0xee, sizeof works);

  OK(tuttiAllReduce(send, recv[0], kCount, tuttiInt32, tuttiSum, comm, NULL, &works[0]));
  OK(tuttiReduce(send, recv[1], kCount, tuttiInt32, tuttiSum, 0, comm, NULL, &works[1]));
  OK(tuttiBroadcast(buffer, kCount, tuttiInt32, 0, comm, NULL, &works[2]));
  OK(tuttiAllGather(send, recv[2], kCount, tuttiInt32, comm, NULL, &works[3]));
  OK(tuttiReduceScatter(send, recv[3], kCount, tuttiInt32, tuttiSum, comm, NULL, &works[4]));
  OK(tuttiAllToAll(send, recv[4], kCount, tuttiInt32, comm, NULL, &works[5]));
  OK(tuttiGather(send, recv[5], kCount, tuttiInt32, 0, comm, NULL, &works[6]));
  OK(tuttiWorkWait(works[6]));
  if (rank == 0) CHECK(holds(recv[5] + kCount, 1, 0));
  OK(tuttiScatter(send, recv[5], kCount, tuttiInt32, 0, comm, NULL, &works[7]));
  OK(tuttiBarrier(comm, NULL, &works[8]));
  OK(tuttiWorkWaitFor(works[8], 20000, &done));
  CHECK(done == 1);
  for (int i = 0; i < 9; ++i) { /* calls end in the order in which they were started */
    done = 0;
    OK(tuttiWorkTest(works[i], &done));
    CHECK(done == 1);
    OK(tuttiWorkFree(works[i]));
    CHECK(tuttiWorkFree(works[i]) == tuttiErrorUsage);
    CHECK(tuttiWorkWait(works[i]) == tuttiErrorUsage);
    CHECK(strstr(tuttiGetLastError(comm), "has been freed") != NULL);
  }
  CHECK(holds_sum(recv[0], ranks, 0));
  CHECK(rank != 0 || holds_sum(recv[1], ranks, 0));
  CHECK(holds(buffer, 0, 0));
  CHECK(holds(recv[2] + kCount, 1, 0));
  CHECK(holds_sum(recv[3], ranks, rank));
  CHECK(holds(recv[4] + kCount, 1, rank));
  CHECK(holds(recv[5], 0, rank));
  return NULL;
}

typedef struct {
  int calls;
  tuttiResult_t result;
  char message[512];
} Ended;

static void note_the_end(tuttiResult_t result, const char* message, void* context) {
  Ended* ended = context;
  ++ended->calls;
  ended->result = result;
  strncpy(ended->message, message, sizeof ended->message - 1);
}

const char* callbacks(tuttiComm_t comm) {
  Ended ended = {0, tuttiErrorInternal, "?"};
  int32_t value = 1;
  tuttiWork_t work = NULL;
  OK(tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, comm, NULL, &work));
  OK(tuttiWorkThen(work, note_the_end, &ended));
  OK(tuttiWorkWait(work));
  CHECK(ended.calls == 1 && ended.result == tuttiSuccess && ended.message[0] == '\0');
  OK(tuttiWorkThen(work, note_the_end, &ended)); /* called at once, since it is done */
  CHECK(ended.calls == 2);
  CHECK(tuttiWorkThen(work, NULL, NULL) == tuttiErrorUsage);
  return tuttiWorkFree(work) == tuttiSuccess ? NULL : "free";
}

const char* parts_of_a_communicator(tuttiComm_t comm) {
  int rank = -1, ranks = -1, in_part = -1, size = -1;
  OK(tuttiCommRank(comm, &rank));
  OK(tuttiCommSize(comm, &ranks));
  tuttiComm_t odd_or_even, last_first, same, none;
  OK(tuttiCommSplit(comm, rank % 2, 0, &odd_or_even));
  OK(tuttiCommSize(odd_or_even, &size));
  CHECK(size == (ranks + 1 - rank % 2) / 2);
  int32_t value = rank, all = -1;
  OK(tuttiAllReduce(&value, &all, 1, tuttiInt32, tuttiMin, odd_or_even, NULL, NULL));
  CHECK(all == rank % 2);

  const int list[] = {ranks - 1, 0};
  OK(tuttiCommSubgroup(comm, list, 2, &last_first));
  CHECK((last_first != NULL) == (rank == 0 || rank == ranks - 1));
  if (last_first != NULL) {
    OK(tuttiCommRank(last_first, &in_part));
    CHECK(in_part == (rank == 0 ? 1 : 0));
  }
  OK(tuttiCommDup(comm, &same));
  OK(tuttiBarrier(same, NULL, NULL));
  OK(tuttiCommSplit(comm, rank == 0 ? TUTTI_NO_COLOR : 7, 0, &none));
  CHECK((none == NULL) == (rank == 0));
  size_t bytes = 0;
  OK(tuttiCommMemory(same, &bytes));
  CHECK(bytes > 0);
  const char* phase = NULL;
  int64_t nanoseconds = -1;
  OK(tuttiCommStartup(comm, 0, &phase, &nanoseconds));
  CHECK(phase != NULL && strlen(phase) > 0 && nanoseconds >= 0);
  OK(tuttiCommStartup(comm, 1000, &phase, &nanoseconds));
  CHECK(phase == NULL);
  CHECK(tuttiCommStartup(comm, -1, &phase, &nanoseconds) == tuttiErrorUsage);
  OK(tuttiCommDestroy(none));
  OK(tuttiCommDestroy(same));
  OK(tuttiCommDestroy(last_first));
  OK(tuttiCommDestroy(odd_or_even));
  return NULL;
}

const char* buffers_of_a_communicator(tuttiComm_t comm) {
  int rank = -1, ranks = 0;
  OK(tuttiCommRank(comm, &rank));
  OK(tuttiCommSize(comm, &ranks));
  enum { COUNT = 20000 };
  void *memory = NULL, *left = NULL, *none = &rank;
  OK(tuttiMemAlloc(comm, COUNT * sizeof(float), &memory));
  OK(tuttiMemAlloc(comm, 1, &left));
  OK(tuttiMemAlloc(comm, 0, &none));
  CHECK(none == NULL);
  float* data = memory;
  for (int i = 0; i < COUNT; ++i) data[i] = (float)(i + rank);
  OK(tuttiAllReduce(data, data, COUNT, tuttiFloat32, tuttiMax, comm, NULL, NULL));
  for (int i = 0; i < COUNT; ++i) CHECK(data[i] == (float)(i + ranks - 1));
  OK(tuttiMemFree(comm, memory));
  OK(tuttiMemFree(comm, NULL));
  CHECK(tuttiMemFree(comm, memory) == tuttiErrorUsage);
  CHECK(tuttiMemFree(comm, &rank) == tuttiErrorUsage);
  CHECK(tuttiMemAlloc(comm, 1, NULL) == tuttiErrorUsage);
  CHECK(tuttiMemAlloc(comm, (size_t)1 << 46, &memory) == tuttiErrorUnavailable && memory == NULL);
  return NULL;
}

const char* registered_memory_of_the_program(tuttiComm_t comm) {
  enum { COUNT = 20000 };
  static _Thread_local float data[COUNT];
  int ranks = 0;
  OK(tuttiCommSize(comm, &ranks));
  OK(tuttiMemRegister(comm, data, sizeof data));
  CHECK(tuttiMemRegister(comm, data, 1) == tuttiErrorUsage);
  CHECK(tuttiMemRegister(comm, NULL, 1) == tuttiErrorUsage);
  CHECK(tuttiMemRegister(NULL, data, 1) == tuttiErrorUsage);
  OK(tuttiMemRegister(comm, data + 1, sizeof data - sizeof *data));
  for (int i = 0; i < COUNT; ++i) data[i] = 1.0F;
  OK(tuttiAllReduce(data, data, COUNT, tuttiFloat32, tuttiSum, comm, NULL, NULL));
  for (int i = 0; i < COUNT; ++i) CHECK(data[i] == (float)ranks);
  OK(tuttiMemDeregister(comm, data));
  CHECK(tuttiMemDeregister(comm, data) == tuttiErrorUsage);
  OK(tuttiMemDeregister(comm, data + 1));
  return NULL;
}

const char* options_of_a_call(tuttiComm_t comm) {
  int ranks = -1;
  OK(tuttiCommSize(comm, &ranks));
  int32_t value = 1, all = 0;
  tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
  options.algorithm = "one_shot";
  options.timeout_ms = 20000;
  OK(tuttiAllReduce(&value, &all, 1, tuttiInt32, tuttiSum, comm, &options, NULL));
  CHECK(all == ranks);
  options.algorithm = "no_such_algorithm";
  CHECK(tuttiAllReduce(&value, &all, 1, tuttiInt32, tuttiSum, comm, &options, NULL) ==
        tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "no_such_algorithm") != NULL);
  options = (tuttiOptions_t)TUTTI_OPTIONS_INITIALIZER;
  options.size = 0; /* this is the size if the initializer was not used */
  CHECK(tuttiBarrier(comm, &options, NULL) == tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "options->size is 0") != NULL);

  /* A program that was built with the first version of tutti, whose options ended before the
     group. */
  options = (tuttiOptions_t)TUTTI_OPTIONS_INITIALIZER;
  options.size = offsetof(tuttiOptions_t, group);
  options.group = (tuttiGroup_t)&value;
  OK(tuttiBarrier(comm, &options, NULL));
  options.size = sizeof options;
  CHECK(tuttiBarrier(comm, &options, NULL) == tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "options->group") != NULL);

  /* A program that was built with a later version of tutti, whose options have more fields. */
  struct {
    tuttiOptions_t known;
    int64_t later;
  } newer = {TUTTI_OPTIONS_INITIALIZER, 0};
  newer.known.size = sizeof newer;
  OK(tuttiBarrier(comm, &newer.known, NULL));
  newer.later = 1;
  CHECK(tuttiBarrier(comm, &newer.known, NULL) == tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "does not know") != NULL);
  return NULL;
}

const char* wrong_arguments(tuttiComm_t comm) {
  int32_t value = 1;
  int number = 0;
  tuttiWork_t work = (tuttiWork_t)&value;
  tuttiPersistent_t persistent = (tuttiPersistent_t)&value;
  const char* said = tuttiGetLastError(NULL);
  CHECK(said[0] == '\0'); /* no call has failed in this thread */

  CHECK(tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, NULL, NULL, &work) ==
        tuttiErrorUsage);
  CHECK(work == NULL);
  CHECK(strcmp(tuttiGetLastError(NULL), "comm is null") == 0);
  CHECK(tuttiAllReduce(&value, &value, 1, (tuttiDataType_t)256, tuttiSum, comm, NULL, NULL) ==
        tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "data type 256") != NULL);
  CHECK(tuttiAllReduce(&value, &value, 1, tuttiInt32, (tuttiOp_t)-1, comm, NULL, NULL) ==
        tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "reduction -1") != NULL);
  CHECK(tuttiAllReduce(&value, &value, 1, tuttiFloat32, tuttiBitAnd, comm, NULL, NULL) ==
        tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "f32") != NULL);
  CHECK(tuttiAllReduce(NULL, &value, 1, tuttiInt32, tuttiSum, comm, NULL, NULL) == tuttiErrorUsage);
  CHECK(tuttiBroadcast(&value, 1, tuttiInt32, 99, comm, NULL, NULL) == tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "root 99") != NULL);
  CHECK(tuttiAllReduceInit(NULL, &value, 1, tuttiInt32, tuttiSum, comm, NULL, &persistent) ==
        tuttiErrorUsage);
  CHECK(persistent == NULL);
  CHECK(tuttiBarrierInit(comm, NULL, NULL) == tuttiErrorUsage);
  CHECK(tuttiPersistentRun(NULL) == tuttiErrorUsage);
  CHECK(tuttiPersistentStart(NULL, &work) == tuttiErrorUsage);
  CHECK(tuttiCommRank(comm, NULL) == tuttiErrorUsage);
  CHECK(tuttiCommSize(NULL, &number) == tuttiErrorUsage);
  CHECK(tuttiCommSplit(comm, 0, 0, NULL) == tuttiErrorUsage);
  CHECK(tuttiCommShrink(comm, 0, NULL) == tuttiErrorUsage);
  CHECK(tuttiCommShrinkToLeast(comm, 0, 1, NULL) == tuttiErrorUsage);
  CHECK(tuttiCommShrinkWithout(comm, &number, 1, 0, NULL) == tuttiErrorUsage);
  CHECK(tuttiCommGrow(comm, 1, 0, NULL) == tuttiErrorUsage);
  CHECK(tuttiCommAgree(comm, NULL, 0, NULL) == tuttiErrorUsage);
  CHECK(tuttiCommJoin(NULL, NULL) == tuttiErrorUsage);
  CHECK(tuttiCommJoinWithStore(NULL, NULL, NULL) == tuttiErrorUsage);
  CHECK(tuttiCommInitFromEnv(NULL, NULL) == tuttiErrorUsage);
  CHECK(tuttiWorkTest(NULL, NULL) == tuttiErrorUsage);
  int32_t zeros[64] = {0};
  CHECK(tuttiBarrier((tuttiComm_t)zeros, NULL, NULL) == tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(NULL), "no such handle") != NULL);

  tuttiResult_t failure = tuttiErrorInternal; /* no wrong call has harmed the communicator */
  OK(tuttiCommGetAsyncError(comm, &failure));
  OK(failure);
  OK(tuttiWorkWait(NULL));
  OK(tuttiWorkFree(NULL));
  OK(tuttiPersistentFree(NULL));
  OK(tuttiCommDestroy(NULL));
  OK(tuttiBarrier(comm, NULL, NULL));
  return NULL;
}

const char* mismatched_call(tuttiComm_t comm) {
  int rank = -1;
  OK(tuttiCommRank(comm, &rank));
  int32_t value[2] = {0, 0};
  const tuttiResult_t result =
      tuttiAllReduce(value, value, rank == 0 ? 1 : 2, tuttiInt32, tuttiSum, comm, NULL, NULL);
  CHECK(result == tuttiErrorMismatch);
  CHECK(strstr(tuttiGetLastError(comm), "1 x int32") != NULL);
  CHECK(strstr(tuttiGetLastError(comm), "2 x int32") != NULL);
  tuttiResult_t failure = tuttiSuccess;
  OK(tuttiCommGetAsyncError(comm, &failure));
  CHECK(failure == tuttiErrorMismatch);
  CHECK(tuttiBarrier(comm, NULL, NULL) == tuttiErrorMismatch);
  return NULL;
}

/* Rank 0 makes no call, so the calls of the other ranks time out. */
const char* late_rank(tuttiComm_t comm) {
  int rank = -1, done = 1;
  OK(tuttiCommRank(comm, &rank));
  if (rank == 0) return NULL;
  tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
  options.timeout_ms = 200;
  Ended ended = {0, tuttiSuccess, ""};
  tuttiWork_t work = NULL;
  int32_t value = 1;
  OK(tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, comm, &options, &work));
  OK(tuttiWorkThen(work, note_the_end, &ended));
  const tuttiResult_t waited = tuttiWorkWaitFor(work, 1, &done);
  CHECK(waited == tuttiErrorTimeout);
  CHECK(tuttiWorkWait(work) == tuttiErrorTimeout);
  CHECK(strstr(tuttiGetLastError(comm), "rank 0") != NULL);
  CHECK(ended.calls == 1 && ended.result == tuttiErrorTimeout);
  CHECK(strstr(ended.message, "rank 0") != NULL);
  return tuttiWorkFree(work) == tuttiSuccess ? NULL : "free";
}

const char* survivor_of_a_killed_rank(void) {
  tuttiComm_t comm = NULL, rest = NULL;
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.startup_timeout_ms = config.timeout_ms = 20000;
  OK(tuttiCommInitFromEnv(&comm, &config));
  int rank = 0, ranks = 0;
  OK(tuttiCommRank(comm, &rank));
  OK(tuttiBarrier(comm, NULL, NULL));
  if (rank == 1) raise(SIGKILL);
  tuttiResult_t ended = tuttiSuccess;
  while (ended == tuttiSuccess) ended = tuttiBarrier(comm, NULL, NULL);
  CHECK(ended == tuttiErrorPeerLost);
  uint64_t flags = 1u << rank | 8u;
  int present[3] = {7, 7, 7};
  OK(tuttiCommAgree(comm, &flags, 0, present));
  CHECK(flags == 8 && present[0] == 1 && present[1] == 0 && present[2] == 1);
  CHECK(tuttiCommShrinkToLeast(comm, 300, 3, &rest) == tuttiErrorTimeout && rest == NULL);
  const int killed = 1;
  CHECK(tuttiCommShrinkWithout(comm, NULL, 1, 0, &rest) == tuttiErrorUsage && rest == NULL);
  CHECK(tuttiCommShrinkWithout(comm, &killed, -1, 0, &rest) == tuttiErrorUsage && rest == NULL);
  CHECK(tuttiCommShrinkWithout(comm, &rank, 1, 0, &rest) == tuttiErrorUsage && rest == NULL);
  OK(tuttiCommShrinkWithout(comm, &killed, 1, 0, &rest));
  OK(tuttiCommSize(rest, &ranks));
  CHECK(ranks == 2);
  tuttiComm_t grown = NULL;
  CHECK(tuttiCommGrow(rest, 1, 300, &grown) == tuttiErrorTimeout && grown == NULL);
  int32_t sum = rank;
  OK(tuttiAllReduce(&sum, &sum, 1, tuttiInt32, tuttiSum, rest, NULL, NULL));
  CHECK(sum == 0 + 2);
  OK(tuttiCommDestroy(comm));
  OK(tuttiCommDestroy(rest));
  return NULL;
}

const char* rank_of_the_environment(void) {
  tuttiComm_t comm = NULL;
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  const char* const settings[] = {"startup_timeout_ms=20000", "timeout_ms=20000", NULL};
  const char* const unknown[] = {"timeout=20000", NULL};
  config.settings = unknown;
  CHECK(tuttiCommInitFromEnv(&comm, &config) == tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(NULL), "the nearest is timeout_ms") != NULL);
  config.settings = settings;
  OK(tuttiCommInitFromEnv(&comm, &config));
  const char* wrong = reductions_and_broadcast(comm);
  if (wrong == NULL) wrong = persistent_calls(comm);
  OK(tuttiCommDestroy(comm));
  return wrong;
}
