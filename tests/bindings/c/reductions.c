#include <tutti/reduction.h>

#include <string.h>

#include "calls.h"
#include "checks.h"

const char* premultipliers_and_accumulation(tuttiComm_t comm) {
  int rank = -1, ranks = -1;
  OK(tuttiCommRank(comm, &rank));
  OK(tuttiCommSize(comm, &ranks));
  int32_t value = 10, all = 0, expected = 0, scalar = rank + 2;
  for (int r = 0; r < ranks; ++r) expected += 10 * (r + 2);
  tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
  options.premultiplier = &scalar;
  tuttiWork_t work = NULL;
  OK(tuttiAllReduce(&value, &all, 1, tuttiInt32, tuttiPremulSum, comm, &options, &work));
  scalar = 0; /* the call has already read it */
  OK(tuttiWorkWait(work));
  OK(tuttiWorkFree(work));
  CHECK(all == expected);
  CHECK(tuttiAllReduce(&value, &all, 1, tuttiInt32, tuttiPremulSum, comm, NULL, NULL) ==
        tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "premultiplier") != NULL);
  CHECK(tuttiAllReduce(&value, &all, 1, tuttiInt32, tuttiSum, comm, &options, NULL) ==
        tuttiErrorUsage);

  /* The algorithm cannot serve f32 over several hops, so the error shows that f32 was requested. */
  uint16_t wide[4] = {0};
  options = (tuttiOptions_t)TUTTI_OPTIONS_INITIALIZER;
  options.algorithm = "recursive_doubling";
  OK(tuttiAllReduce(wide, wide, 4, tuttiBfloat16, tuttiSum, comm, &options, NULL));
  options.accumulate = tuttiAccumulateF32;
  CHECK(tuttiAllReduce(wide, wide, 4, tuttiBfloat16, tuttiSum, comm, &options, NULL) ==
        tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "accumulate = f32") != NULL);
  options.algorithm = "ring";
  OK(tuttiAllReduce(wide, wide, 4, tuttiBfloat16, tuttiSum, comm, &options, NULL));
  options.accumulate = (tuttiAccumulate_t)4;
  CHECK(tuttiAllReduce(wide, wide, 4, tuttiBfloat16, tuttiSum, comm, &options, NULL) ==
        tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "accumulation 4") != NULL);

  options = (tuttiOptions_t)TUTTI_OPTIONS_INITIALIZER;
  options.stream = &options;
  CHECK(tuttiAllReduce(&value, &all, 1, tuttiInt32, tuttiSum, comm, &options, NULL) ==
        tuttiErrorUnavailable);
  options.size = offsetof(tuttiOptions_t, stream); /* as in programs of earlier versions */
  OK(tuttiAllReduce(&value, &all, 1, tuttiInt32, tuttiSum, comm, &options, NULL));
  return NULL;
}

/* The configuration of this communicator sets f32 for calls whose options set nothing. */
const char* accumulation_as_configured(tuttiComm_t comm) {
  uint16_t wide[4] = {0};
  tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
  options.algorithm = "recursive_doubling";
  CHECK(tuttiAllReduce(wide, wide, 4, tuttiBfloat16, tuttiSum, comm, &options, NULL) ==
        tuttiErrorUsage);
  options.accumulate = tuttiAccumulateStep;
  OK(tuttiAllReduce(wide, wide, 4, tuttiBfloat16, tuttiSum, comm, &options, NULL));
  return NULL;
}

/* An element of 12 bytes. The larger key wins, together with its rank. */
typedef struct {
  int32_t key, rank, folded;
} Best;

static tuttiResult_t keep_best(const void* in, void* inout, size_t count, void* context) {
  const Best* left = in;
  Best* right = inout;
  for (size_t i = 0; i < count; ++i) {
    const int32_t folded = left[i].folded + right[i].folded;
    if (left[i].key > right[i].key) right[i] = left[i];
    right[i].folded = folded;
  }
  return *(const tuttiResult_t*)context;
}

enum { kBest = 2 };

/* Rank i % ranks has the largest key of element i. */
static void fill_best(Best* data, int rank, int ranks, int count) {
  for (int i = 0; i < count; ++i) {
    data[i].key = i % ranks == rank ? 100 : rank;
    data[i].rank = rank;
    data[i].folded = 1;
  }
}

static int holds_best(const Best* data, int ranks, int first, int count) {
  for (int i = 0; i < count; ++i)
    if (data[i].rank != (first + i) % ranks || data[i].folded != ranks) return 0;
  return 1;
}

/* Reduces kBest elements for each rank, or as many as `counts` says. */
static tuttiResult_t reduce_with(int kind, const Best* send, Best* recv, const size_t* counts,
                                 tuttiReduction_t best, tuttiComm_t comm, tuttiWork_t* work) {
  int ranks = 0;
  tuttiCommSize(comm, &ranks);
  const size_t all = (size_t)(kBest * ranks);
  switch (kind) {
    case 0: return tuttiAllReduceWith(send, recv, all, best, comm, NULL, work);
    case 1: return tuttiReduceWith(send, recv, all, best, 1, comm, NULL, work);
    case 2: return tuttiReduceScatterWith(send, recv, kBest, best, comm, NULL, work);
    default: return tuttiReduceScatterVWith(send, recv, counts, NULL, best, comm, NULL, work);
  }
}

const char* own_reductions(tuttiComm_t comm) {
  int rank = -1, ranks = -1;
  OK(tuttiCommRank(comm, &rank));
  OK(tuttiCommSize(comm, &ranks));
  tuttiResult_t result = tuttiSuccess;
  tuttiReduction_t best = NULL;
  OK(tuttiReductionCreate(&best, "best", sizeof(Best), keep_best, &result));
  const int all = kBest * ranks, first = kBest * rank;
  Best send[kBest * kMostRanks], recv[kBest * kMostRanks];
  size_t counts[kMostRanks];
  for (int r = 0; r < ranks; ++r) counts[r] = kBest;
  counts[0] += 1;
  counts[ranks - 1] -= 1;
  const int first_v = rank == 0 ? 0 : first + 1, count_v = (int)counts[rank];
  tuttiPersistent_t calls[4];
  OK(tuttiAllReduceWithInit(send, recv, (size_t)all, best, comm, NULL, &calls[0]));
  OK(tuttiReduceWithInit(send, recv, (size_t)all, best, 1, comm, NULL, &calls[1]));
  OK(tuttiReduceScatterWithInit(send, recv, kBest, best, comm, NULL, &calls[2]));
  OK(tuttiReduceScatterVWithInit(send, recv, counts, NULL, best, comm, NULL, &calls[3]));
  fill_best(send, rank, ranks, all);
  for (int form = 0; form < 3; ++form) { /* blocking, asynchronous, persistent */
    tuttiWork_t work = NULL;
    tuttiWork_t* const later = form == 1 ? &work : NULL;
    for (int kind = 0; kind < 4; ++kind) {
      memset(recv, 0, sizeof recv);
      OK(form == 2 ? tuttiPersistentRun(calls[kind])
                   : reduce_with(kind, send, recv, counts, best, comm, later));
      OK(tuttiWorkWait(work));
      OK(tuttiWorkFree(work));
      work = NULL;
      if (kind == 0) CHECK(holds_best(recv, ranks, 0, all));
      if (kind == 1 && rank == 1) CHECK(holds_best(recv, ranks, 0, all));
      if (kind == 2) CHECK(holds_best(recv, ranks, first, kBest));
      if (kind == 3) CHECK(holds_best(recv, ranks, first_v, count_v));
    }
  }
  for (int kind = 0; kind < 4; ++kind) OK(tuttiPersistentFree(calls[kind]));

  CHECK(tuttiAllReduceWith(send, recv, 1, NULL, comm, NULL, NULL) == tuttiErrorUsage);
  tuttiReduction_t none = best;
  CHECK(tuttiReductionCreate(&none, "none", sizeof(Best), NULL, NULL) == tuttiErrorUsage);
  CHECK(none == NULL);
  CHECK(tuttiReductionCreate(&none, NULL, sizeof(Best), keep_best, NULL) == tuttiErrorUsage);
  CHECK(tuttiReductionCreate(&none, "empty", 0, keep_best, NULL) == tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "1 to 4096") != NULL);
  OK(tuttiReductionFree(NULL));

  result = tuttiErrorCorrupt; /* the rank that reduces ends the call for all ranks */
  CHECK(tuttiAllReduceWith(send, recv, (size_t)all, best, comm, NULL, NULL) == tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "returned 6 (corrupt)") != NULL);
  return tuttiReductionFree(best) == tuttiSuccess ? NULL : "free";
}
