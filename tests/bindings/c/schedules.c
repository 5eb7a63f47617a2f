#include <tutti/schedule.h>

#include <string.h>

#include "calls.h"
#include "checks.h"

/* The context of a planner: what it is asked to do, and what it has seen. */
typedef struct {
  int forget, planned, released;
  int wrong; /* which argument is wrong */
} Context;

static void released(void* context) { ++((Context*)context)->released; }

static const tuttiOperand_t kMine = {tuttiPlaceInput, 0}, kResult = {tuttiPlaceOutput, 0},
                            kCentre = {tuttiPlacePeer, 0};

static tuttiResult_t move(tuttiPlan_t plan, int lane, tuttiOperand_t from, tuttiOperand_t to) {
  tuttiStep_t step = TUTTI_STEP_INITIALIZER;
  step.in = &from;
  step.out = &to;
  step.inputs = step.outputs = 1;
  return tuttiPlanStep(plan, lane, &step);
}

/* An all_reduce through rank 0, which adds everyone's input in the order of ranks. */
static tuttiResult_t star(const tuttiPlanRequest_t* request, tuttiPlan_t plan, void* context) {
  Context* its = context;
  ++its->planned;
  if (request->what != tuttiCollectiveAllReduce) return tuttiErrorUnavailable;
  int lane = -1;
  tuttiPlanLane(plan, 0, 0, &lane);
  if (request->rank != 0) {
    move(plan, lane, kMine, kCentre);
    return move(plan, lane, kCentre, kResult);
  }
  tuttiOperand_t in[kMostRanks] = {kMine}, out[kMostRanks] = {kResult};
  for (int rank = 1; rank < request->ranks; ++rank) {
    const tuttiOperand_t other = {tuttiPlacePeer, rank};
    in[rank] = out[rank] = other;
  }
  tuttiStep_t step = TUTTI_STEP_INITIALIZER;
  step.in = in;
  step.out = out;
  step.inputs = request->ranks - its->forget;
  step.outputs = request->ranks;
  step.completes = 1;
  return tuttiPlanStep(plan, lane, &step);
}

/* An all_gather of each rank with each other. The own block is on a lane of its own, which waits
   for the other lane. */
static tuttiResult_t exchange(const tuttiPlanRequest_t* request, tuttiPlan_t plan, void* context) {
  if (request->size < sizeof *request || request->groups != NULL || context != NULL)
    return tuttiErrorInternal;
  if (request->what != tuttiCollectiveAllGather) return tuttiErrorUnavailable;
  int lane = -1, copies = -1;
  tuttiPlanLane(plan, 0, 0, &lane);
  tuttiPlanLane(plan, 1, 1, &copies);
  tuttiStep_t step = TUTTI_STEP_INITIALIZER;
  tuttiOperand_t in, out[kMostRanks];
  step.in = &in;
  step.out = out;
  step.inputs = 1;
  for (int rank = 0; rank < request->ranks; ++rank)
    if (rank != request->rank) {
      out[step.outputs].place = tuttiPlacePeer;
      out[step.outputs++].index = rank;
    }
  in.place = tuttiPlaceInput;
  in.index = step.chunk = request->rank;
  if (request->ranks > 1) tuttiPlanStep(plan, lane, &step);
  step.outputs = 1;
  out[0].place = tuttiPlaceOutput;
  for (int rank = 0; rank < request->ranks; ++rank) {
    if (rank == request->rank) continue;
    in.place = tuttiPlacePeer;
    in.index = out[0].index = step.chunk = rank;
    tuttiPlanStep(plan, lane, &step);
  }
  in.place = tuttiPlaceInput;
  in.index = out[0].index = step.chunk = request->rank;
  step.after_lane = lane;
  step.after_step = request->ranks - 1;
  return tuttiPlanStep(plan, copies, &step);
}

/* A broadcast in which the root sends to each rank. docs/embedding.md shows it. */
static tuttiResult_t flat(const tuttiPlanRequest_t* request, tuttiPlan_t plan, void* context) {
  (void)context;
  if (request->what != tuttiCollectiveBroadcast) return tuttiErrorUnavailable;
  int lane;
  tuttiPlanLane(plan, 0, 0, &lane);
  for (int rank = 0; rank < request->ranks; ++rank) {
    tuttiOperand_t mine = {tuttiPlaceInput, 0}, result = {tuttiPlaceOutput, 0};
    tuttiOperand_t root = {tuttiPlacePeer, request->root}, other = {tuttiPlacePeer, rank};
    const int here = rank == request->rank, is_root = request->rank == request->root;
    tuttiStep_t step = TUTTI_STEP_INITIALIZER;
    step.inputs = step.outputs = 1;
    step.in = is_root ? &mine : &root;
    step.out = here ? &result : &other;
    if (is_root || here) tuttiPlanStep(plan, lane, &step);
  }
  return tuttiSuccess;
}

static const char* refused(const char* name, const char* why, tuttiComm_t comm) {
  tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
  options.algorithm = name;
  int32_t value = 1;
  CHECK(tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, comm, &options, NULL) ==
        tuttiErrorUsage);
  if (strstr(tuttiGetLastError(comm), why) == NULL) return tuttiGetLastError(comm);
  return NULL;
}

const char* own_algorithms(tuttiComm_t comm) {
  int rank = -1, ranks = -1;
  OK(tuttiCommRank(comm, &rank));
  OK(tuttiCommSize(comm, &ranks));
  Context context = {0};
  tuttiAlgorithm_t algorithm = TUTTI_ALGORITHM_INITIALIZER;
  algorithm.name = "star";
  algorithm.plan = star;
  algorithm.context = &context;
  algorithm.release = released;
  tuttiComm_t dup = NULL;
  OK(tuttiCommDup(comm, &dup));
  OK(tuttiCommAddAlgorithm(dup, &algorithm));
  CHECK(context.planned == 0);

  int32_t mine[kCount], got[kMostRanks * kCount];
  tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
  options.algorithm = "star";
  for (int round = 0; round < 3; ++round) {
    fill(mine, rank, 1);
    memset(got, 0, sizeof got);
    OK(tuttiAllReduce(mine, got, kCount, tuttiInt32, tuttiSum, dup, &options, NULL));
    CHECK(holds_sum(got, ranks, 0));
  }
  CHECK(context.planned == ranks);
  CHECK(tuttiBroadcast(mine, kCount, tuttiInt32, 0, dup, &options, NULL) == tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(dup), "returned 2 (unavailable)") != NULL);

  /* Communicators that are split off have the algorithm, and keep it. */
  tuttiComm_t part = NULL;
  OK(tuttiCommDup(dup, &part));
  OK(tuttiCommDestroy(dup));
  CHECK(context.released == 0);
  OK(tuttiAllReduce(mine, got, kCount, tuttiInt32, tuttiSum, part, &options, NULL));
  CHECK(holds_sum(got, ranks, 0));
  CHECK(tuttiCommAddAlgorithm(part, &algorithm) == tuttiErrorUsage); /* the name is taken */
  CHECK(context.released == 0);
  OK(tuttiCommDestroy(part));
  CHECK(context.released == 1);

  algorithm.name = "exchange";
  algorithm.plan = exchange;
  algorithm.context = NULL;
  algorithm.release = NULL;
  OK(tuttiCommAddAlgorithm(comm, &algorithm));
  options.algorithm = "exchange";
  OK(tuttiAllGather(mine, got, kCount, tuttiInt32, comm, &options, NULL));
  for (int r = 0; r < ranks; ++r) CHECK(holds(got + r * kCount, r, 0));
  algorithm.name = options.algorithm = "flat";
  algorithm.plan = flat;
  OK(tuttiCommAddAlgorithm(comm, &algorithm));
  OK(tuttiBroadcast(mine, kCount, tuttiInt32, 1, comm, &options, NULL));
  CHECK(holds(mine, 1, 0));
  return NULL;
}

static tuttiResult_t wrong(const tuttiPlanRequest_t* request, tuttiPlan_t plan, void* context) {
  const Context* its = context;
  int lane = -1;
  tuttiPlanLane(plan, 0, 0, &lane);
  tuttiOperand_t from = kMine;
  tuttiStep_t step = TUTTI_STEP_INITIALIZER;
  step.in = &from;
  step.out = &kResult;
  step.inputs = step.outputs = 1;
  switch (its->wrong) {
    case 0: tuttiPlanStep(plan, 1, &step); break;
    case 1: step.inputs = -1; break;
    case 2: step.out = NULL; break;
    case 3: from.place = (tuttiPlace_t)4; break;
    case 4: step.size = 8; break;
    case 5: tuttiPlanShape(plan, 0, 0, 1); break;
    case 6: tuttiPlanLane(plan, 0, 0, NULL); break;
    default: tuttiPlanStep(plan, lane, NULL); break;
  }
  (void)request;
  tuttiPlanStep(plan, lane, &step);
  return tuttiSuccess; /* the wrong argument is reported in any case */
}

const char* wrong_algorithms(tuttiComm_t comm) {
  Context forgetful = {.forget = 1}, careless = {0};
  tuttiAlgorithm_t algorithm = TUTTI_ALGORITHM_INITIALIZER;
  CHECK(tuttiCommAddAlgorithm(comm, NULL) == tuttiErrorUsage);
  CHECK(tuttiCommAddAlgorithm(comm, &algorithm) == tuttiErrorUsage);
  algorithm.plan = star;
  algorithm.context = &forgetful;
  CHECK(tuttiCommAddAlgorithm(comm, &algorithm) == tuttiErrorUsage);
  algorithm.name = "ring";
  CHECK(tuttiCommAddAlgorithm(comm, &algorithm) == tuttiErrorUsage);
  algorithm.name = "forgetful";
  OK(tuttiCommAddAlgorithm(comm, &algorithm));
  const char* said = refused("forgetful", "misses the contribution of rank", comm);
  if (said != NULL) return said;

  algorithm.name = "careless";
  algorithm.plan = wrong;
  algorithm.context = &careless;
  OK(tuttiCommAddAlgorithm(comm, &algorithm));
  static const char* const kSaid[] = {"no lane 1; 1 were added",
                                      "-1 operands in step->in",
                                      "1 operands in step->out, which is null",
                                      "no place 4",
                                      "step->size is 8",
                                      "0 chunks",
                                      "tuttiPlanLane: lane is null",
                                      "tuttiPlanStep: step is null"};
  for (; careless.wrong < (int)(sizeof kSaid / sizeof kSaid[0]); ++careless.wrong) {
    said = refused("careless", kSaid[careless.wrong], comm);
    if (said != NULL) return said;
  }
  OK(tuttiBarrier(comm, NULL, NULL)); /* the communicator can still be used */
  return NULL;
}
