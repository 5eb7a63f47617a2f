/* tutti: algorithms of the program's own. An algorithm does not send anything: it writes each
   rank's schedule, which tutti proves and then runs as its own. What schedules mean is said in
   tutti/schedule.hpp, and docs/embedding.md has a whole algorithm in C. */
#pragma once

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tuttiCollective_t TUTTI_ENUM {
  tuttiCollectiveAllReduce = 0,
  tuttiCollectiveBroadcast = 1,
  tuttiCollectiveReduce = 2,
  tuttiCollectiveAllGather = 3,
  tuttiCollectiveReduceScatter = 4,
  tuttiCollectiveBarrier = 5, /* an all-reduce of nothing */
  tuttiCollectiveGather = 6,
  tuttiCollectiveScatter = 7,
  tuttiCollectiveAllToAll = 8
} tuttiCollective_t;

/* What an algorithm is asked for: one rank's schedule. Grows at its end; `size` says how far this
   one goes. */
typedef struct tuttiPlanRequest_t {
  size_t size;
  tuttiCollective_t what;
  int rank;
  int ranks;
  int root;          /* 0 where the collective has none */
  const int* groups; /* by rank: the number of its group, a host's for example; null: not known */
} tuttiPlanRequest_t;

/* A schedule in the making. Valid while its planner runs, in that thread. */
typedef struct tuttiPlan* tuttiPlan_t;

/* For any other collective than those it is for, return tuttiErrorUnavailable. A function of the
   request alone: each rank asks it for all ranks' schedules. It may be called by any thread that
   calls a communicator that knows it. What a function below was given wrong is told by the call
   that needed the plan, whatever the planner returns. */
typedef tuttiResult_t (*tuttiPlanner_t)(const tuttiPlanRequest_t* request, tuttiPlan_t plan,
                                        void* context);

typedef enum tuttiPlace_t TUTTI_ENUM {
  tuttiPlaceInput = 0,
  tuttiPlaceOutput = 1,
  tuttiPlaceScratch = 2,
  tuttiPlacePeer = 3
} tuttiPlace_t;

/* One side of a step: chunks of a buffer from number `index` on, or one message from or to rank
   `index`. Does not grow. */
typedef struct tuttiOperand_t {
  tuttiPlace_t place;
  int index;
} tuttiOperand_t;

#define TUTTI_ANY_CHUNK (-1) /* as kAnyChunk of tutti/schedule.hpp */
/* The one kind of step: combine what these hold, and hand the result to those. */
typedef struct tuttiStep_t {
  size_t size;
  const tuttiOperand_t* in; /* one is copied; more are reduced in the order written */
  const tuttiOperand_t* out;
  int inputs;            /* operands of `in` */
  int outputs;           /* operands of `out` */
  int chunk;             /* the first of the chunks that are moved */
  int count;             /* how many: equal for all operands */
  int completes;         /* not 0: the result is final here */
  int after_lane;        /* of this rank, a step of which must be done first; negative: none */
  int after_step;        /* which: a lane's steps count from 0 */
  int after_pieces_back; /* 0: of the same piece; else of an earlier one */
} tuttiStep_t;
#define TUTTI_STEP_INITIALIZER \
  { sizeof(tuttiStep_t), NULL, NULL, 0, 0, 0, 1, 0, -1, 0, 0 }

/* Where it is not called: one chunk, or one for each block of the call, which is what all on blocks
   must have; no scratch; steps that move one chunk. `widest`: the most chunks that any step of any
   rank moves, the same on all ranks. */
TUTTI_API tuttiResult_t tuttiPlanShape(tuttiPlan_t plan, int chunks, int scratch_chunks,
                                       int widest);
/* Adds a lane, whose steps are done in order, beside those of other lanes. `receives_on` and
   `sends_on` are channel numbers: a channel's end belongs to one lane. *lane counts from 0. */
TUTTI_API tuttiResult_t tuttiPlanLane(tuttiPlan_t plan, int receives_on, int sends_on, int* lane);
/* Adds a step to a lane. What it points to is copied. */
TUTTI_API tuttiResult_t tuttiPlanStep(tuttiPlan_t plan, int lane, const tuttiStep_t* step);

typedef struct tuttiAlgorithm_t {
  size_t size;
  const char* name; /* by which tuttiOptions_t::algorithm asks for it; copied */
  tuttiPlanner_t plan;
  void* context; /* handed to the planner */
  /* Called once, when no communicator knows it any more: those that are split off inherit it. Not
     where it was not added. May be null. */
  void (*release)(void* context);
} tuttiAlgorithm_t;
#define TUTTI_ALGORITHM_INITIALIZER \
  { sizeof(tuttiAlgorithm_t), NULL, NULL, NULL, NULL }

/* Every rank adds the same. Proved at its first use for a collective and root: a wrong one is
   `usage` on every rank, with a counter-example, and nothing has been sent; ranks that plan
   differently get a mismatch. */
TUTTI_API tuttiResult_t tuttiCommAddAlgorithm(tuttiComm_t comm, const tuttiAlgorithm_t* algorithm);

#ifdef __cplusplus
}
#endif
