/* tutti: collective communication for C, and for every language that can call C. It offers the C++
   library (tutti/tutti.hpp) in the shape of nccl.h; docs/embedding.md says how to embed it. More
   headers hold calls that are started many times (persistent.h), reductions and algorithms of the
   program's own (reduction.h, schedule.h), plans (plans.h), and what a launcher says (launch.h).

   The ABI only grows: values, fields and functions are appended; none changes or is removed. Each
   struct that can grow begins with its size, which its initializer sets. The library uses defaults
   for the fields that a shorter struct lacks, and refuses a longer struct if a byte beyond the
   fields that it knows is not zero. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <tutti/store.h>
#include <tutti/types.h>
#include <tutti/export.hpp>

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0
#define TUTTI_VERSION_CODE \
  (TUTTI_VERSION_MAJOR * 10000 + TUTTI_VERSION_MINOR * 100 + TUTTI_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* A communicator: a group of ranks. Only one thread at a time may call it; different communicators
   are independent of each other. */
typedef struct tuttiComm* tuttiComm_t;
/* An asynchronous call. Any thread may use it. Functions treat a null handle as a call that has
   ended well. */
typedef struct tuttiWork* tuttiWork_t;
/* A group of calls that start together. One thread uses it. */
typedef struct tuttiGroup* tuttiGroup_t;

/* ---- Versions and errors ---- */

/* Writes the version of the library that runs, in the format of TUTTI_VERSION_CODE. */
TUTTI_API tuttiResult_t tuttiGetVersion(int* version);
/* Returns the result's name, for example "peer_lost". */
TUTTI_API const char* tuttiGetErrorString(tuttiResult_t result);
/* Returns the message of the last call that failed in the calling thread: the ranks, the operation,
   what was expected, what was found and what to do. If no call has failed in this thread, returns
   the error that ended `comm`, or "" if there is none or `comm` is null. The text is valid until
   the next failed call of the thread. */
TUTTI_API const char* tuttiGetLastError(tuttiComm_t comm);

/* ---- Communicators ---- */

/* A call for which an algorithm is chosen. The struct may grow at its end; `size` is the size of
   this one. */
typedef struct tuttiSelectQuery_t {
  size_t size;
  tuttiCollective_t what;
  tuttiDataType_t dtype; /* tuttiUint8 for a reduction of the program's own */
  tuttiOp_t op;
  int root; /* 0 if the collective has none */
  int ranks;
  tuttiAccumulate_t accumulate; /* the call's, or else the configuration's */
  size_t count;                 /* the call's count; 0 if ranks know different lengths */
  size_t bytes;                 /* size of `count` elements */
} tuttiSelectQuery_t;

/* Settings of a communicator. A field that is zero leaves the setting to the environment
   (docs/configuration.md). Strings are copied. */
typedef struct tuttiConfig_t {
  size_t size;
  const char* transports; /* comma-separated names, in order of preference */
  const char* algorithm;  /* name of one algorithm, for every call that it can serve */
  int64_t timeout_ms;     /* deadline of each operation whose options give none */
  int64_t startup_timeout_ms;
  size_t message_bytes;      /* size of the largest message */
  size_t ring_bytes;         /* size of one channel in memory */
  tuttiLogLevel_t log_level; /* the least severe level that is logged */
  /* Receives each line of the log, in any thread, one line at a time. It must not call tutti. If it
     is null, lines go to standard error. */
  void (*log)(tuttiLogLevel_t level, const char* line, void* context);
  void* log_context;
  tuttiAccumulate_t accumulate; /* for calls whose options give none */
  int64_t stall_ms; /* an operation that takes longer is logged; negative: no operation is */
  /* Any setting of docs/configuration.md, as strings "name=value" with a null behind the last. The
     fields above take precedence. Null: none. */
  const char* const* settings;
  /* Returns the name of the algorithm for a call that names none, or null to let tutti choose. It
     must depend on the query alone and return the same on every rank; else the call fails with
     tuttiErrorMismatch. It is called when a call of a new kind is planned, in the calling thread,
     and must not call tutti. The name is copied. Null: `algorithm` says it. */
  const char* (*select)(const tuttiSelectQuery_t* query, void* context);
  void* select_context;
} tuttiConfig_t;
#define TUTTI_CONFIG_INITIALIZER                                                \
  {                                                                             \
    sizeof(tuttiConfig_t), NULL, NULL, 0, 0, 0, 0, tuttiLogDefault, NULL, NULL, \
        tuttiAccumulateDefault, 0, NULL, NULL, NULL                             \
  }

/* Joins the job that the variables RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and so on describe
   (tutti-run sets them). Blocks until all ranks have joined or the start-up deadline has passed.
   `config` may be null. Every function that makes one communicator sets it to null if it fails. */
TUTTI_API tuttiResult_t tuttiCommInitFromEnv(tuttiComm_t* comm, const tuttiConfig_t* config);
/* Joins `ranks` ranks that share `store`, as rank `rank`. */
TUTTI_API tuttiResult_t tuttiCommInitWithStore(tuttiComm_t* comm, const tuttiStore_t* store,
                                               int rank, int ranks, const tuttiConfig_t* config);
/* Makes communicators for `ranks` threads of this process: comms[r] is rank r's. */
TUTTI_API tuttiResult_t tuttiCommInitInProcess(tuttiComm_t* comms, int ranks,
                                               const tuttiConfig_t* config);
/* Waits for asynchronous calls, each until its deadline at most, tells the peers that this rank
   leaves, and frees everything. A null `comm` is ignored. Returns tuttiErrorUsage if persistent
   calls of `comm` have not been freed, or another thread is in a call of it. */
TUTTI_API tuttiResult_t tuttiCommDestroy(tuttiComm_t comm);
/* Makes all current and later calls of this communicator fail with tuttiErrorPeerLost and a message
   that contains `why`, on this rank and on its peers. Any thread may call it. */
TUTTI_API tuttiResult_t tuttiCommAbort(tuttiComm_t comm, const char* why);
/* From now on, calls of this thread that wait ask `interrupted` (null: no more), which must not
   call tutti. Once it has not returned 0, they end with tuttiErrorPeerLost, as do later ones until
   the next call of this function: see tutti::Interruptible. */
TUTTI_API void tuttiInterruptWith(int (*interrupted)(void));

#define TUTTI_NO_COLOR (-1)
/* Splits the communicator. All ranks call it, as they do a collective. Ranks that pass the same
   color (0 or more) get a communicator of their own, in which they are ordered by key, then by
   their rank in `comm`. Ranks that pass TUTTI_NO_COLOR get null. */
TUTTI_API tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t* part);
/* Makes a second communicator of the same ranks. All ranks call it. */
TUTTI_API tuttiResult_t tuttiCommDup(tuttiComm_t comm, tuttiComm_t* dup);
/* Makes a communicator of ranks[0 .. count - 1], in that order. All ranks of `comm` call it with
   the same list; those that are not in the list get null. */
TUTTI_API tuttiResult_t tuttiCommSubgroup(tuttiComm_t comm, const int* ranks, int count,
                                          tuttiComm_t* part);
/* After a failure, makes a communicator of the ranks that call this function, in the order of their
   ranks in `comm`. Waits up to patience_ms (0 means 10 s) for each rank that is not known to have
   ended. docs/embedding.md has the details. */
TUTTI_API tuttiResult_t tuttiCommShrink(tuttiComm_t comm, int64_t patience_ms, tuttiComm_t* rest);
/* Does the same where at least `least` ranks are left; fewer get tuttiErrorTimeout, and may call it
   again. */
TUTTI_API tuttiResult_t tuttiCommShrinkToLeast(tuttiComm_t comm, int64_t patience_ms, int least,
                                               tuttiComm_t* rest);
/* Makes a communicator of exactly those ranks that are not among ranks[0 .. count - 1], also where
   nothing has failed. They all call it with the same list. */
TUTTI_API tuttiResult_t tuttiCommShrinkWithout(tuttiComm_t comm, const int* ranks, int count,
                                               int64_t patience_ms, tuttiComm_t* rest);
/* Makes a communicator of all ranks of `comm`, in their order, followed by `newcomers` processes
   that have called tuttiCommJoin or do so within patience_ms (0 means 10 s). All ranks call it with
   the same number, and all get the communicator or none does. */
TUTTI_API tuttiResult_t tuttiCommGrow(tuttiComm_t comm, int newcomers, int64_t patience_ms,
                                      tuttiComm_t* grown);
/* Comes to a running job, whose ranks call tuttiCommGrow, and waits for them up to the start-up
   timeout. The process needs no rank: MASTER_ADDR and MASTER_PORT, or a store in the configuration,
   say where the job is. */
TUTTI_API tuttiResult_t tuttiCommJoin(tuttiComm_t* comm, const tuttiConfig_t* config);
/* Does the same over `store`, which is that of the job's ranks. */
TUTTI_API tuttiResult_t tuttiCommJoinWithStore(tuttiComm_t* comm, const tuttiStore_t* store,
                                               const tuttiConfig_t* config);
/* Agrees with the other ranks on the bitwise AND of their *flags, which replaces *flags. All ranks
   call it, also after a failure. Waits up to patience_ms (0 means 10 s) for each rank that is not
   known to have ended. Writes 1 to present[r] if rank r took part, else 0; `present` has an element
   for each rank, or is null. All that return get the same. */
TUTTI_API tuttiResult_t tuttiCommAgree(tuttiComm_t comm, uint64_t* flags, int64_t patience_ms,
                                       int* present);
TUTTI_API tuttiResult_t tuttiCommRank(tuttiComm_t comm, int* rank);
TUTTI_API tuttiResult_t tuttiCommSize(tuttiComm_t comm, int* ranks);
/* Writes how many bytes this rank holds for the communicator's messages, status pages and partial
   results. */
TUTTI_API tuttiResult_t tuttiCommMemory(tuttiComm_t comm, size_t* bytes);
/* Allocates zeroed, page-aligned memory of this rank that the other ranks of the same machine read
   and write directly: collectives of `comm` on it copy nothing into messages (see
   tutti/buffer.hpp). Each rank allocates independently of the others. */
TUTTI_API tuttiResult_t tuttiMemAlloc(tuttiComm_t comm, size_t bytes, void** data);
/* Frees memory from tuttiMemAlloc, once the calls that use it have ended. Destroying `comm` frees
   the rest. A null `data` is ignored. */
TUTTI_API tuttiResult_t tuttiMemFree(tuttiComm_t comm, void* data);
/* Registers memory of the program, which network devices of this rank then work with directly: long
   messages over RDMA are not copied there. What tuttiMemAlloc gives needs it not. Each rank
   registers independently of the others. The memory must stay mapped until tuttiMemDeregister, or
   until `comm` is destroyed; no call may use it then. Without devices, nothing changes. */
TUTTI_API tuttiResult_t tuttiMemRegister(tuttiComm_t comm, void* data, size_t bytes);
/* Ends the registration of memory that begins at `data`. */
TUTTI_API tuttiResult_t tuttiMemDeregister(tuttiComm_t comm, void* data);
/* Writes the name and the duration of phase `index` of the communicator's start-up. The phases are
   numbered from 0; beyond the last one *name is null. A name is valid as long as `comm` is. */
TUTTI_API tuttiResult_t tuttiCommStartup(tuttiComm_t comm, int index, const char** name,
                                         int64_t* nanoseconds);
/* Writes the kind of the error that ended the communicator, or tuttiSuccess while it can be used.
   Any thread may call it. */
TUTTI_API tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t* failure);

/* ---- Operations ----
   All ranks make the same calls in the same order. Counts are numbers of elements. `send` and
   `recv` may be the same memory as each function's "in place" says; every other overlap is
   tuttiErrorUsage. `options` may be null.

   If `work` is null, the call blocks. Otherwise it returns at once and sets *work to the call,
   which tuttiWorkFree frees; the buffers belong to the call until it has ended.

   If the result is tuttiErrorUsage, nothing has happened: correct the call and go on. After any
   other error the communicator has failed, and every later call returns the same error: destroy
   it. */

/* The message that tuttiRecv received. This struct does not grow. */
typedef struct tuttiReceived_t {
  int source;
  int tag;
  size_t count; /* number of elements, at most the number asked for */
} tuttiReceived_t;

typedef struct tuttiOptions_t {
  size_t size;
  int64_t timeout_ms;    /* deadline, counted from the start of the call; 0: the configuration's */
  const char* algorithm; /* its name, the same on every rank; null: the library chooses */
  tuttiGroup_t group;    /* if not null, the call only returns, and starts when the group ends */
  tuttiReceived_t* received; /* set by tuttiRecv before the call ends; must be valid until then */
  const void* premultiplier; /* for tuttiPremulSum: one element of `dtype`, which multiplies this
                                rank's input; read before the call returns; ranks may differ */
  tuttiAccumulate_t accumulate; /* the same on every rank */
  void* stream; /* a GPU's, that orders the call; it may be captured (docs/gpu.md) */
} tuttiOptions_t;
#define TUTTI_OPTIONS_INITIALIZER \
  { sizeof(tuttiOptions_t), 0, NULL, NULL, NULL, NULL, tuttiAccumulateDefault, NULL }

/* Sets recv[i] to the reduction of send[i] over all ranks, with the same bits on every rank. In
   place: send == recv. */
TUTTI_API tuttiResult_t tuttiAllReduce(const void* send, void* recv, size_t count,
                                       tuttiDataType_t dtype, tuttiOp_t op, tuttiComm_t comm,
                                       const tuttiOptions_t* options, tuttiWork_t* work);
/* Does what tuttiAllReduce does on rank `root` only; other ranks do not use `recv`, which may be
   null. */
TUTTI_API tuttiResult_t tuttiReduce(const void* send, void* recv, size_t count,
                                    tuttiDataType_t dtype, tuttiOp_t op, int root, tuttiComm_t comm,
                                    const tuttiOptions_t* options, tuttiWork_t* work);
/* Copies `buffer` of rank `root` to `buffer` of every other rank. */
TUTTI_API tuttiResult_t tuttiBroadcast(void* buffer, size_t count, tuttiDataType_t dtype, int root,
                                       tuttiComm_t comm, const tuttiOptions_t* options,
                                       tuttiWork_t* work);
/* Gathers `count` elements of each rank in `recv`, in the order of ranks. In place: send == recv +
   rank * count. */
TUTTI_API tuttiResult_t tuttiAllGather(const void* send, void* recv, size_t count,
                                       tuttiDataType_t dtype, tuttiComm_t comm,
                                       const tuttiOptions_t* options, tuttiWork_t* work);
/* Reduces `send` as tuttiAllReduce does and stores block `rank` of the result, which has `count`
   elements, in `recv`. In place: recv == send + rank * count. */
TUTTI_API tuttiResult_t tuttiReduceScatter(const void* send, void* recv, size_t count,
                                           tuttiDataType_t dtype, tuttiOp_t op, tuttiComm_t comm,
                                           const tuttiOptions_t* options, tuttiWork_t* work);
/* Does what tuttiAllGather does on rank `root` only; other ranks do not use `recv`, which may be
   null. */
TUTTI_API tuttiResult_t tuttiGather(const void* send, void* recv, size_t count,
                                    tuttiDataType_t dtype, int root, tuttiComm_t comm,
                                    const tuttiOptions_t* options, tuttiWork_t* work);
/* Stores block `rank`, of `count` elements, of `send` of rank `root` in `recv`; ranks other than
   `root` do not use `send`, which may be null. In place, on `root`: recv == send + rank * count. */
TUTTI_API tuttiResult_t tuttiScatter(const void* send, void* recv, size_t count,
                                     tuttiDataType_t dtype, int root, tuttiComm_t comm,
                                     const tuttiOptions_t* options, tuttiWork_t* work);
/* Stores block `rank` of `send` of each rank r as block r of `recv`. A block has `count` elements.
   In place: send == recv. */
TUTTI_API tuttiResult_t tuttiAllToAll(const void* send, void* recv, size_t count,
                                      tuttiDataType_t dtype, tuttiComm_t comm,
                                      const tuttiOptions_t* options, tuttiWork_t* work);

/* The following calls work on blocks of different lengths. Counts and displacements have one entry
   for each rank, in elements, and are read before the call returns. If displacements are null, the
   blocks lie one after the other. Blocks that are written must not overlap. */

/* Gathers counts[r] elements of each rank r at recv + displs[r]. The counts are the same on every
   rank. In place: send == recv + displs[rank]. */
TUTTI_API tuttiResult_t tuttiAllGatherV(const void* send, void* recv, const size_t* counts,
                                        const size_t* displs, tuttiDataType_t dtype,
                                        tuttiComm_t comm, const tuttiOptions_t* options,
                                        tuttiWork_t* work);
/* Reduces, and gives rank r the counts[r] elements at send + displs[r]. The counts are the same on
   every rank. In place: recv == send + displs[rank]. */
TUTTI_API tuttiResult_t tuttiReduceScatterV(const void* send, void* recv, const size_t* counts,
                                            const size_t* displs, tuttiDataType_t dtype,
                                            tuttiOp_t op, tuttiComm_t comm,
                                            const tuttiOptions_t* options, tuttiWork_t* work);
/* Gathers `send_count` elements of this rank; `root` stores counts[r] elements of rank r at recv +
   displs[r]. Other ranks do not use recv, counts and displs. */
TUTTI_API tuttiResult_t tuttiGatherV(const void* send, size_t send_count, void* recv,
                                     const size_t* counts, const size_t* displs,
                                     tuttiDataType_t dtype, int root, tuttiComm_t comm,
                                     const tuttiOptions_t* options, tuttiWork_t* work);
/* Stores `recv_count` elements in `recv` of this rank; `root` has counts[r] elements for rank r at
   send + displs[r]. Other ranks do not use send, counts and displs. */
TUTTI_API tuttiResult_t tuttiScatterV(const void* send, const size_t* counts, const size_t* displs,
                                      void* recv, size_t recv_count, tuttiDataType_t dtype,
                                      int root, tuttiComm_t comm, const tuttiOptions_t* options,
                                      tuttiWork_t* work);
/* Sends send_counts[r] elements to each rank r and receives recv_counts[r] elements from it. */
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
/* Sends to rank `peer`, which receives with the same type and a matching tag (0 to INT_MAX). The
   call ends when `buffer` may be written again: at once for a short message, as long as few of them
   are unreceived; otherwise when a receive has taken the message. Messages from one rank to another
   are matched in the order in which they were sent. */
TUTTI_API tuttiResult_t tuttiSend(const void* buffer, size_t count, tuttiDataType_t dtype, int peer,
                                  int tag, tuttiComm_t comm, const tuttiOptions_t* options,
                                  tuttiWork_t* work);
/* Receives at most `count` elements from rank `peer` or TUTTI_ANY_SOURCE, with `tag` or
   TUTTI_ANY_TAG. A longer message, or one of another type, is tuttiErrorMismatch. */
TUTTI_API tuttiResult_t tuttiRecv(void* buffer, size_t count, tuttiDataType_t dtype, int peer,
                                  int tag, tuttiComm_t comm, const tuttiOptions_t* options,
                                  tuttiWork_t* work);
/* A call whose options name a group is checked and returns at once, with a null work. tuttiGroupEnd
   starts all calls of the group, on whatever communicators; it blocks if `work` is null. Sends and
   receives of a group that cross never wait for each other; collectives keep their order. A group
   may be used again after its end. Freeing it drops the calls that were not started. */
TUTTI_API tuttiResult_t tuttiGroupCreate(tuttiGroup_t* group);
TUTTI_API tuttiResult_t tuttiGroupEnd(tuttiGroup_t group, tuttiWork_t* work);
TUTTI_API tuttiResult_t tuttiGroupFree(tuttiGroup_t group);

/* ---- Asynchronous calls ---- */

/* Helps to advance the call until it has ended; returns its result. */
TUTTI_API tuttiResult_t tuttiWorkWait(tuttiWork_t work);
/* Does the same for at most `limit_ms`. After that it returns tuttiErrorTimeout and sets *done to
   0; only the waiting ends, and the call goes on. */
TUTTI_API tuttiResult_t tuttiWorkWaitFor(tuttiWork_t work, int64_t limit_ms, int* done);
/* Sets *done to whether the call has ended, and if it has, returns its result. Never blocks. */
TUTTI_API tuttiResult_t tuttiWorkTest(tuttiWork_t work, int* done);
/* Calls `callback` once, when the call has ended and just before it counts as done, in the thread
   that ends it; or at once if the call is already done. `message` is the error's text, or "" if the
   call ended well; it is valid during the callback. A callback may start asynchronous calls;
   waiting in it is tuttiErrorUsage. It should be short. */
typedef void (*tuttiCallback_t)(tuttiResult_t result, const char* message, void* context);
TUTTI_API tuttiResult_t tuttiWorkThen(tuttiWork_t work, tuttiCallback_t callback, void* context);
/* Frees the handle. It cancels nothing: a call that is under way goes on. */
TUTTI_API tuttiResult_t tuttiWorkFree(tuttiWork_t work);

#ifdef __cplusplus
}
#endif
