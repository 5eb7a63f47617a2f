/* tutti: collective communication from C, and from everything that calls C. The C++ library
   (tutti/tutti.hpp) in the shape of nccl.h; docs/embedding.md says how to embed it. Calls that are
   started many times are in tutti/persistent.h, reductions of one's own in tutti/reduction.h,
   algorithms of one's own in tutti/schedule.h.

   The ABI only grows: values, fields and functions are appended, none changes or goes. Structs
   begin with their size, which their initializers set: one that is shorter than this library's has
   the defaults for the rest, and one that is longer is refused where what is beyond is not zero. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <tutti/export.hpp>

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0
#define TUTTI_VERSION_CODE \
  (TUTTI_VERSION_MAJOR * 10000 + TUTTI_VERSION_MINOR * 100 + TUTTI_VERSION_PATCH)

#ifdef __cplusplus
#define TUTTI_ENUM : int /* as in C, and so whatever a caller passes has a meaning */
extern "C" {
#else
#define TUTTI_ENUM
#endif

/* What every function returns: success, or what the caller can do about it. */
typedef enum tuttiResult_t TUTTI_ENUM {
  tuttiSuccess = 0,
  tuttiErrorUsage = 1,       /* the call is wrong: fix it; nothing has happened */
  tuttiErrorUnavailable = 2, /* this machine or build cannot do it */
  tuttiErrorMismatch = 3,    /* ranks called different things, or are set up differently */
  tuttiErrorPeerLost = 4,    /* a peer's process has ended, or its connection broke */
  tuttiErrorTimeout = 5,     /* the deadline passed */
  tuttiErrorCorrupt = 6,     /* data arrived damaged */
  tuttiErrorInternal = 7     /* a bug of tutti: please report it */
} tuttiResult_t;

typedef enum tuttiDataType_t TUTTI_ENUM {
  tuttiInt8 = 0,
  tuttiUint8 = 1,
  tuttiInt16 = 2,
  tuttiUint16 = 3,
  tuttiInt32 = 4,
  tuttiUint32 = 5,
  tuttiInt64 = 6,
  tuttiUint64 = 7,
  tuttiFloat16 = 8,
  tuttiBfloat16 = 9,
  tuttiFloat32 = 10,
  tuttiFloat64 = 11,
  tuttiFloat8e4m3 = 12,
  tuttiFloat8e5m2 = 13,
  tuttiComplex64 = 14, /* two f32 */
  tuttiComplex128 = 15,
  tuttiBool = 16
} tuttiDataType_t;

typedef enum tuttiOp_t TUTTI_ENUM {
  tuttiSum = 0,
  tuttiProd = 1,
  tuttiMin = 2,
  tuttiMax = 3,
  tuttiAvg = 4,
  tuttiPremulSum = 5,
  tuttiBitAnd = 6,
  tuttiBitOr = 7,
  tuttiBitXor = 8,
  tuttiLogicalAnd = 9,
  tuttiLogicalOr = 10
} tuttiOp_t;

/* What partial sums and products of 16- and 8-bit floats are held in from one rank to the next. */
typedef enum tuttiAccumulate_t TUTTI_ENUM {
  tuttiAccumulateDefault = 0,     /* the environment's; in a call the communicator's */
  tuttiAccumulateStep = 1,        /* the type: rounded in each step */
  tuttiAccumulateF32 = 2,         /* f32: rounded once; messages are 2 or 4 times as long */
  tuttiAccumulateReproducible = 3 /* integers: no order changes a bit; docs/numerics.md */
} tuttiAccumulate_t;

typedef enum tuttiLogLevel_t TUTTI_ENUM {
  tuttiLogDefault = 0, /* the environment's */
  tuttiLogError = 1,
  tuttiLogWarn = 2,
  tuttiLogInfo = 3,
  tuttiLogDebug = 4
} tuttiLogLevel_t;

/* A group of ranks. One thread at a time calls a communicator; different ones are independent. */
typedef struct tuttiComm* tuttiComm_t;
/* An asynchronous call. Any thread may use it. Null: one that is done. */
typedef struct tuttiWork* tuttiWork_t;
/* Calls that are made together. One thread. */
typedef struct tuttiGroup* tuttiGroup_t;

/* ---- Versions and errors ---- */

/* The version of the library that runs, as TUTTI_VERSION_CODE. */
TUTTI_API tuttiResult_t tuttiGetVersion(int* version);
/* The result's name, for example "peer_lost". */
TUTTI_API const char* tuttiGetErrorString(tuttiResult_t result);
/* What the calling thread's last failed call said: ranks, operation, what was expected and found,
   what to do. Where none has failed in this thread: the error that ended `comm`, which may be null;
   else "". Valid until the thread's next failed call. */
TUTTI_API const char* tuttiGetLastError(tuttiComm_t comm);

/* ---- Communicators ---- */

/* All zero but the size: what the environment says (docs/configuration.md). Strings are copied. */
typedef struct tuttiConfig_t {
  size_t size;
  const char* transports; /* comma-separated, in order of preference */
  const char* algorithm;  /* one algorithm for every call that knows it */
  int64_t timeout_ms;     /* deadline of an operation that is given none */
  int64_t startup_timeout_ms;
  size_t message_bytes;      /* largest message */
  size_t ring_bytes;         /* of a channel in memory */
  tuttiLogLevel_t log_level; /* what is at least as grave is logged */
  /* Gets each line of the log, in any thread, one at a time; must not call tutti. Null: lines go to
     standard error. */
  void (*log)(tuttiLogLevel_t level, const char* line, void* context);
  void* log_context;
  tuttiAccumulate_t accumulate; /* of calls that do not say */
  int64_t stall_ms;             /* what takes longer is told in the log; below 0: never */
} tuttiConfig_t;
#define TUTTI_CONFIG_INITIALIZER                                                \
  {                                                                             \
    sizeof(tuttiConfig_t), NULL, NULL, 0, 0, 0, 0, tuttiLogDefault, NULL, NULL, \
        tuttiAccumulateDefault, 0                                               \
  }

/* The program's own key-value store, through which ranks find each other: shared by all of them,
   alive as long as they are. Keys have up to 1 KiB, values up to 1 MiB, of any bytes. Called by any
   thread, several at a time. Each function ends within `limit_ms` and returns tuttiErrorTimeout
   where it could not, tuttiErrorPeerLost where the store is gone. Copied; all but `context` and
   `release` are needed. */
typedef struct tuttiStore_t {
  size_t size;
  void* context; /* handed to each function */
  tuttiResult_t (*set)(void* context, const void* key, size_t key_bytes, const void* value,
                       size_t value_bytes, int64_t limit_ms);
  /* Waits until the key has a value; *value_bytes is its length, and as much of it as fits into
     `capacity` bytes is written. Called again with more room where it did not fit. */
  tuttiResult_t (*get)(void* context, const void* key, size_t key_bytes, void* value,
                       size_t capacity, size_t* value_bytes, int64_t limit_ms);
  /* Atomic among ranks: adds to the decimal number under the key (0 where there is none). */
  tuttiResult_t (*add)(void* context, const void* key, size_t key_bytes, int64_t amount,
                       int64_t* sum, int64_t limit_ms);
  /* Returns when the key has a value. */
  tuttiResult_t (*wait)(void* context, const void* key, size_t key_bytes, int64_t limit_ms);
  /* Called once, when no communicator uses it any more. May be null. */
  void (*release)(void* context);
} tuttiStore_t;
#define TUTTI_STORE_INITIALIZER \
  { sizeof(tuttiStore_t), NULL, NULL, NULL, NULL, NULL, NULL }

/* Joins the job that RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT … describe (tutti-run sets them).
   Blocks until all ranks are there or the start-up deadline. `config` may be null. Whatever fails
   to make a communicator sets it to null. */
TUTTI_API tuttiResult_t tuttiCommInitFromEnv(tuttiComm_t* comm, const tuttiConfig_t* config);
/* Joins `ranks` ranks that share `store`. */
TUTTI_API tuttiResult_t tuttiCommInitWithStore(tuttiComm_t* comm, const tuttiStore_t* store,
                                               int rank, int ranks, const tuttiConfig_t* config);
/* comms[0 .. ranks - 1] of one process, by rank: one for each thread. */
TUTTI_API tuttiResult_t tuttiCommInitInProcess(tuttiComm_t* comms, int ranks,
                                               const tuttiConfig_t* config);
/* Waits for asynchronous calls within their deadlines, says goodbye to peers, frees everything.
   Null: nothing. `usage` while it has persistent calls that are not freed. */
TUTTI_API tuttiResult_t tuttiCommDestroy(tuttiComm_t comm);
/* Any thread: all calls on it, under way and later, here and on its peers, are `peer_lost`, with
 * `why`. */
TUTTI_API tuttiResult_t tuttiCommAbort(tuttiComm_t comm, const char* why);

#define TUTTI_NO_COLOR (-1)
/* Called by all ranks, as a collective is: ranks of the same color (0 or more) get a communicator
   of their own, ranked by key and then by their rank here; those with TUTTI_NO_COLOR get null. */
TUTTI_API tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t* part);
/* A second communicator of the same ranks. */
TUTTI_API tuttiResult_t tuttiCommDup(tuttiComm_t comm, tuttiComm_t* dup);
/* Those of ranks[0 .. count - 1], the same list on every rank, in that order; null for others. */
TUTTI_API tuttiResult_t tuttiCommSubgroup(tuttiComm_t comm, const int* ranks, int count,
                                          tuttiComm_t* part);
/* After a failure: a communicator of the ranks that call this, in their order here. Waits for each
   not known to have ended, patience_ms at most (0: 10 s). docs/embedding.md says the rest. */
TUTTI_API tuttiResult_t tuttiCommShrink(tuttiComm_t comm, int64_t patience_ms, tuttiComm_t* rest);
TUTTI_API tuttiResult_t tuttiCommRank(tuttiComm_t comm, int* rank);
TUTTI_API tuttiResult_t tuttiCommSize(tuttiComm_t comm, int* ranks);
/* Memory for messages, status pages and partial results that this rank holds for it. */
TUTTI_API tuttiResult_t tuttiCommMemory(tuttiComm_t comm, size_t* bytes);
/* Memory of this rank that the others of the same machine read and write where it lies: collectives
   of `comm` on it copy nothing into messages (tutti/buffer.hpp says the rest). Zeros, on a page.
   Each rank allocates for itself. */
TUTTI_API tuttiResult_t tuttiMemAlloc(tuttiComm_t comm, size_t bytes, void** data);
/* Once the calls that use it are done. What is left ends with `comm`. Null: nothing. */
TUTTI_API tuttiResult_t tuttiMemFree(tuttiComm_t comm, void* data);
/* Where the time of its start-up went, phase by phase from index 0 on: *name is null behind the
   last, else valid as long as `comm` is. */
TUTTI_API tuttiResult_t tuttiCommStartup(tuttiComm_t comm, int index, const char** name,
                                         int64_t* nanoseconds);
/* The kind of the error that ended it; tuttiSuccess while it can be used. Any thread. */
TUTTI_API tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t* failure);

/* ---- Operations ----
   Counts are elements. `send` and `recv` may be the same buffer where "in place" says so; any other
   overlap is `usage`. All ranks make the same calls in the same order. `options` may be null.

   `work` null: the call blocks. Else it returns at once, *work is the call, to be freed with
   tuttiWorkFree, and the buffers belong to it until it is done.

   Results: `usage`: nothing has happened, correct the call and go on. Any other: the communicator
   has failed, every later call returns the same; destroy it. */

/* What tuttiRecv got. Does not grow. */
typedef struct tuttiReceived_t {
  int source;
  int tag;
  size_t count; /* elements; at most those that were asked for */
} tuttiReceived_t;

typedef struct tuttiOptions_t {
  size_t size;
  int64_t timeout_ms;        /* deadline, from when the call begins; 0: the configuration's */
  const char* algorithm;     /* by name, the same on every rank; null: chosen */
  tuttiGroup_t group;        /* the call is made when the group ends; it returns at once */
  tuttiReceived_t* received; /* tuttiRecv: written before it has ended, and valid until then */
  const void* premultiplier; /* tuttiPremulSum: one element of `dtype` by which this rank's input is
                                multiplied, read before the call returns; may differ among ranks */
  tuttiAccumulate_t accumulate; /* the same on every rank */
} tuttiOptions_t;
#define TUTTI_OPTIONS_INITIALIZER \
  { sizeof(tuttiOptions_t), 0, NULL, NULL, NULL, NULL, tuttiAccumulateDefault }

/* recv[i] = op over all ranks of send[i]; the same bits on every rank. In place: send == recv. */
TUTTI_API tuttiResult_t tuttiAllReduce(const void* send, void* recv, size_t count,
                                       tuttiDataType_t dtype, tuttiOp_t op, tuttiComm_t comm,
                                       const tuttiOptions_t* options, tuttiWork_t* work);
/* As tuttiAllReduce, on `root` alone; elsewhere `recv` is not used and may be null. */
TUTTI_API tuttiResult_t tuttiReduce(const void* send, void* recv, size_t count,
                                    tuttiDataType_t dtype, tuttiOp_t op, int root, tuttiComm_t comm,
                                    const tuttiOptions_t* options, tuttiWork_t* work);
/* `buffer` of `root`, everywhere. */
TUTTI_API tuttiResult_t tuttiBroadcast(void* buffer, size_t count, tuttiDataType_t dtype, int root,
                                       tuttiComm_t comm, const tuttiOptions_t* options,
                                       tuttiWork_t* work);
/* recv = `count` elements of each rank, by rank. In place: send == recv + rank * count. */
TUTTI_API tuttiResult_t tuttiAllGather(const void* send, void* recv, size_t count,
                                       tuttiDataType_t dtype, tuttiComm_t comm,
                                       const tuttiOptions_t* options, tuttiWork_t* work);
/* recv = block `rank`, of `count` elements, of the reduction. In place: recv == send + rank *
   count. */
TUTTI_API tuttiResult_t tuttiReduceScatter(const void* send, void* recv, size_t count,
                                           tuttiDataType_t dtype, tuttiOp_t op, tuttiComm_t comm,
                                           const tuttiOptions_t* options, tuttiWork_t* work);
/* As tuttiAllGather, on `root` alone; elsewhere `recv` is not used and may be null. */
TUTTI_API tuttiResult_t tuttiGather(const void* send, void* recv, size_t count,
                                    tuttiDataType_t dtype, int root, tuttiComm_t comm,
                                    const tuttiOptions_t* options, tuttiWork_t* work);
/* recv = block `rank`, of `count` elements, of `root`'s `send`; elsewhere `send` is not used and
   may be null. In place, on `root`: recv == send + rank * count. */
TUTTI_API tuttiResult_t tuttiScatter(const void* send, void* recv, size_t count,
                                     tuttiDataType_t dtype, int root, tuttiComm_t comm,
                                     const tuttiOptions_t* options, tuttiWork_t* work);
/* Block r of recv = block `rank` of rank r's send, of `count` elements. In place: send == recv. */
TUTTI_API tuttiResult_t tuttiAllToAll(const void* send, void* recv, size_t count,
                                      tuttiDataType_t dtype, tuttiComm_t comm,
                                      const tuttiOptions_t* options, tuttiWork_t* work);

/* With blocks of different lengths. Counts and displacements have an entry for each rank, in
   elements, and are read before the call returns; displacements may be null: the blocks lie one
   behind the other. Blocks that are written must not overlap. */

/* counts[r] elements of rank r to recv + displs[r]; the same counts on every rank. In place: send
   == recv + displs[rank]. */
TUTTI_API tuttiResult_t tuttiAllGatherV(const void* send, void* recv, const size_t* counts,
                                        const size_t* displs, tuttiDataType_t dtype,
                                        tuttiComm_t comm, const tuttiOptions_t* options,
                                        tuttiWork_t* work);
/* counts[r] elements at send + displs[r] to rank r, reduced; the same counts on every rank. */
TUTTI_API tuttiResult_t tuttiReduceScatterV(const void* send, void* recv, const size_t* counts,
                                            const size_t* displs, tuttiDataType_t dtype,
                                            tuttiOp_t op, tuttiComm_t comm,
                                            const tuttiOptions_t* options, tuttiWork_t* work);
/* `send_count` elements of this rank; on `root`, counts[r] of rank r to recv + displs[r]. Elsewhere
   recv, counts and displs are not used. */
TUTTI_API tuttiResult_t tuttiGatherV(const void* send, size_t send_count, void* recv,
                                     const size_t* counts, const size_t* displs,
                                     tuttiDataType_t dtype, int root, tuttiComm_t comm,
                                     const tuttiOptions_t* options, tuttiWork_t* work);
/* `recv_count` elements to this rank; on `root`, counts[r] at send + displs[r] to rank r. Elsewhere
   send, counts and displs are not used. */
TUTTI_API tuttiResult_t tuttiScatterV(const void* send, const size_t* counts, const size_t* displs,
                                      void* recv, size_t recv_count, tuttiDataType_t dtype,
                                      int root, tuttiComm_t comm, const tuttiOptions_t* options,
                                      tuttiWork_t* work);
/* send_counts[r] elements to rank r, recv_counts[r] of it. */
TUTTI_API tuttiResult_t tuttiAllToAllV(const void* send, const size_t* send_counts,
                                       const size_t* send_displs, void* recv,
                                       const size_t* recv_counts, const size_t* recv_displs,
                                       tuttiDataType_t dtype, tuttiComm_t comm,
                                       const tuttiOptions_t* options, tuttiWork_t* work);
/* Ends when every rank has called it. */
TUTTI_API tuttiResult_t tuttiBarrier(tuttiComm_t comm, const tuttiOptions_t* options,
                                     tuttiWork_t* work);

/* ---- Point to point, and groups ---- */

#define TUTTI_ANY_SOURCE (-1)
#define TUTTI_ANY_TAG (-1)
/* To rank `peer`, which receives with the same type and a tag that matches (0 to INT_MAX). Ends
   when `buffer` may be written again: at once for a short message while few are unreceived, else
   when the receiver has come for it. Messages of one rank to another are matched in the order of
   sending. */
TUTTI_API tuttiResult_t tuttiSend(const void* buffer, size_t count, tuttiDataType_t dtype, int peer,
                                  int tag, tuttiComm_t comm, const tuttiOptions_t* options,
                                  tuttiWork_t* work);
/* At most `count` elements from `peer` or TUTTI_ANY_SOURCE, with `tag` or TUTTI_ANY_TAG. A longer
   message, or one of another type, is a mismatch. */
TUTTI_API tuttiResult_t tuttiRecv(void* buffer, size_t count, tuttiDataType_t dtype, int peer,
                                  int tag, tuttiComm_t comm, const tuttiOptions_t* options,
                                  tuttiWork_t* work);
/* A call whose options name the group is checked and returns at once (its work is null); the end
   starts them all, on whatever communicators. Those that cross never wait for each other's turn;
   collectives keep their order. May be used again after its end; freeing it drops what was not
   started. */
TUTTI_API tuttiResult_t tuttiGroupCreate(tuttiGroup_t* group);
TUTTI_API tuttiResult_t tuttiGroupEnd(tuttiGroup_t group, tuttiWork_t* work);
TUTTI_API tuttiResult_t tuttiGroupFree(tuttiGroup_t group);

/* ---- Asynchronous calls ---- */

/* Helps to advance the call until it is done; returns how it ended. */
TUTTI_API tuttiResult_t tuttiWorkWait(tuttiWork_t work);
/* For at most `limit_ms`: then tuttiErrorTimeout, which ends only the waiting, and *done is 0. */
TUTTI_API tuttiResult_t tuttiWorkWaitFor(tuttiWork_t work, int64_t limit_ms, int* done);
/* Never blocks. *done: whether it has ended; where it has, returns how. */
TUTTI_API tuttiResult_t tuttiWorkTest(tuttiWork_t work, int* done);
/* Calls `callback` once, when the call has ended and just before it is done, in the thread that
   ends it; at once where it has. `message`: what the error said, valid during the callback; ""
   where it ended well. A callback may start asynchronous calls; to wait in it is `usage`. Keep it
   short. */
typedef void (*tuttiCallback_t)(tuttiResult_t result, const char* message, void* context);
TUTTI_API tuttiResult_t tuttiWorkThen(tuttiWork_t work, tuttiCallback_t callback, void* context);
/* Frees the handle, and cancels nothing: what is under way goes on. */
TUTTI_API tuttiResult_t tuttiWorkFree(tuttiWork_t work);

#ifdef __cplusplus
}
#endif
