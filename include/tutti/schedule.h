/* tutti: algorithms of the program's own. An algorithm sends nothing itself: it writes each rank's
   schedule, which tutti verifies and then runs like its own. tutti/schedule.hpp defines what a
   schedule means, and docs/embedding.md has a complete algorithm in C. */
#pragma once

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A request to an algorithm for one rank's schedule. The struct may grow at its end; `size` is the
   size of this one. */
typedef struct tuttiPlanRequest_t {
  size_t size;
  tuttiCollective_t what;
  int rank;
  int ranks;
  int root;          /* 0 if the collective has no root */
  const int* groups; /* number of each rank's group, its host for example; null if not known */
  /* A number for each rank: ranks of a group with near numbers are near each other in their
     machine. Null if no rank is nearer than another. */
  const int* places;
} tuttiPlanRequest_t;

/* A schedule that is being written. It is valid only while its planner runs, in that thread. */
typedef struct tuttiPlan* tuttiPlan_t;

/* Writes the schedule that `request` asks for into `plan`. It must depend on the request alone,
   since each rank asks for the schedules of all ranks. It returns tuttiErrorUnavailable for a
   collective that it does not implement. Any thread that calls a communicator with this algorithm
   may call it. If it passes a wrong argument to one of the functions below, the call that needed
   the plan fails with that error, whatever the planner returns. */
typedef tuttiResult_t (*tuttiPlanner_t)(const tuttiPlanRequest_t* request, tuttiPlan_t plan,
                                        void* context);

typedef enum tuttiPlace_t TUTTI_ENUM {
  tuttiPlaceInput = 0,
  tuttiPlaceOutput = 1,
  tuttiPlaceScratch = 2,
  tuttiPlacePeer = 3
} tuttiPlace_t;

/* One side of a step: the chunks of a buffer from number `index` on, or one message from or to rank
   `index`. This struct does not grow. */
typedef struct tuttiOperand_t {
  tuttiPlace_t place;
  int index;
} tuttiOperand_t;

#define TUTTI_ANY_CHUNK (-1) /* the same as kAnyChunk of tutti/schedule.hpp */
/* A step reads the operands `in`, combines them and hands the result to the operands `out`. */
typedef struct tuttiStep_t {
  size_t size;
  const tuttiOperand_t* in; /* one is copied; several are reduced in this order */
  const tuttiOperand_t* out;
  int inputs;            /* number of operands in `in` */
  int outputs;           /* number of operands in `out` */
  int chunk;             /* the first chunk that the step moves */
  int count;             /* number of chunks, the same for all operands */
  int completes;         /* not 0 if the result is final here */
  int after_lane;        /* lane of this rank with a step that must be done first; negative: none */
  int after_step;        /* number of that step; a lane's steps are numbered from 0 */
  int after_pieces_back; /* 0: that step of the same piece; n: of the piece n earlier */
} tuttiStep_t;
#define TUTTI_STEP_INITIALIZER \
  { sizeof(tuttiStep_t), NULL, NULL, 0, 0, 0, 1, 0, -1, 0, 0 }

/* Sets the number of chunks, the scratch memory in chunks, and the largest number of chunks that
   any step of any rank moves, which must be the same on all ranks. Without this call the schedule
   has one chunk, or one for each block of the call if the collective works on blocks (such a
   schedule must have exactly that many); no scratch memory; and steps that move one chunk. */
TUTTI_API tuttiResult_t tuttiPlanShape(tuttiPlan_t plan, int chunks, int scratch_chunks,
                                       int widest);
/* Adds a lane. The steps of a lane run in order, beside those of other lanes. `receives_on` and
   `sends_on` are channel numbers; each end of a channel belongs to one lane. *lane is set to the
   number of the lane; the first is 0. */
TUTTI_API tuttiResult_t tuttiPlanLane(tuttiPlan_t plan, int receives_on, int sends_on, int* lane);
/* Adds a step to a lane. Everything that `step` points to is copied. */
TUTTI_API tuttiResult_t tuttiPlanStep(tuttiPlan_t plan, int lane, const tuttiStep_t* step);

typedef struct tuttiAlgorithm_t {
  size_t size;
  const char* name; /* tuttiOptions_t::algorithm asks for this name; copied */
  tuttiPlanner_t plan;
  void* context; /* passed to the planner */
  /* Called once, after the last communicator with this algorithm has gone; communicators that are
     split off inherit algorithms. Not called if adding the algorithm failed. May be null. */
  void (*release)(void* context);
} tuttiAlgorithm_t;
#define TUTTI_ALGORITHM_INITIALIZER \
  { sizeof(tuttiAlgorithm_t), NULL, NULL, NULL, NULL }

/* Adds an algorithm to the communicator. Every rank adds the same. It is verified when it is
   first used for a collective and root: if it is wrong, the call is tuttiErrorUsage on every
   rank, with a counter-example, and nothing has been sent. Ranks that plan differently get
   tuttiErrorMismatch. */
TUTTI_API tuttiResult_t tuttiCommAddAlgorithm(tuttiComm_t comm, const tuttiAlgorithm_t* algorithm);

#ifdef __cplusplus
}
#endif
