/* tutti: persistent calls, which are planned once and started many times, as in MPI. */
#pragma once

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A persistent call. The thread rules of its communicator apply to it, and it must be freed before
   the communicator is destroyed. On the other ranks the matching call may be persistent or not. */
typedef struct tuttiPersistent* tuttiPersistent_t;

/* tuttiPersistentRun blocks until the call has ended. tuttiPersistentStart returns a work at once;
   it may be called again before the previous start has ended. */
TUTTI_API tuttiResult_t tuttiPersistentRun(tuttiPersistent_t persistent);
TUTTI_API tuttiResult_t tuttiPersistentStart(tuttiPersistent_t persistent, tuttiWork_t* work);
/* Adds one run of the call to a group: it returns at once, and the call runs when the group ends.
   The call may be added again, or freed, before that. */
TUTTI_API tuttiResult_t tuttiPersistentAddTo(tuttiPersistent_t persistent, tuttiGroup_t group);
/* Frees the handle. A call that has been started goes on. */
TUTTI_API tuttiResult_t tuttiPersistentFree(tuttiPersistent_t persistent);

/* Each of the following functions takes the arguments of the call that it is named after, checks
   and plans the call, and sends nothing. A wrong argument is tuttiErrorUsage. Every run uses the
   buffers and what `options->received` points to; all other arguments are read now. The options
   must name no group; tuttiPersistentAddTo puts a run into one. */

TUTTI_API tuttiResult_t tuttiAllReduceInit(const void* send, void* recv, size_t count,
                                           tuttiDataType_t dtype, tuttiOp_t op, tuttiComm_t comm,
                                           const tuttiOptions_t* options,
                                           tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiReduceInit(const void* send, void* recv, size_t count,
                                        tuttiDataType_t dtype, tuttiOp_t op, int root,
                                        tuttiComm_t comm, const tuttiOptions_t* options,
                                        tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiBroadcastInit(void* buffer, size_t count, tuttiDataType_t dtype,
                                           int root, tuttiComm_t comm,
                                           const tuttiOptions_t* options,
                                           tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiAllGatherInit(const void* send, void* recv, size_t count,
                                           tuttiDataType_t dtype, tuttiComm_t comm,
                                           const tuttiOptions_t* options,
                                           tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiReduceScatterInit(const void* send, void* recv, size_t count,
                                               tuttiDataType_t dtype, tuttiOp_t op,
                                               tuttiComm_t comm, const tuttiOptions_t* options,
                                               tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiGatherInit(const void* send, void* recv, size_t count,
                                        tuttiDataType_t dtype, int root, tuttiComm_t comm,
                                        const tuttiOptions_t* options,
                                        tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiScatterInit(const void* send, void* recv, size_t count,
                                         tuttiDataType_t dtype, int root, tuttiComm_t comm,
                                         const tuttiOptions_t* options,
                                         tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiAllToAllInit(const void* send, void* recv, size_t count,
                                          tuttiDataType_t dtype, tuttiComm_t comm,
                                          const tuttiOptions_t* options,
                                          tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiBarrierInit(tuttiComm_t comm, const tuttiOptions_t* options,
                                         tuttiPersistent_t* persistent);

/* With blocks of different lengths. */

TUTTI_API tuttiResult_t tuttiAllGatherVInit(const void* send, void* recv, const size_t* counts,
                                            const size_t* displs, tuttiDataType_t dtype,
                                            tuttiComm_t comm, const tuttiOptions_t* options,
                                            tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiReduceScatterVInit(const void* send, void* recv, const size_t* counts,
                                                const size_t* displs, tuttiDataType_t dtype,
                                                tuttiOp_t op, tuttiComm_t comm,
                                                const tuttiOptions_t* options,
                                                tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiGatherVInit(const void* send, size_t send_count, void* recv,
                                         const size_t* counts, const size_t* displs,
                                         tuttiDataType_t dtype, int root, tuttiComm_t comm,
                                         const tuttiOptions_t* options,
                                         tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiScatterVInit(const void* send, const size_t* counts,
                                          const size_t* displs, void* recv, size_t recv_count,
                                          tuttiDataType_t dtype, int root, tuttiComm_t comm,
                                          const tuttiOptions_t* options,
                                          tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiAllToAllVInit(const void* send, const size_t* send_counts,
                                           const size_t* send_displs, void* recv,
                                           const size_t* recv_counts, const size_t* recv_displs,
                                           tuttiDataType_t dtype, tuttiComm_t comm,
                                           const tuttiOptions_t* options,
                                           tuttiPersistent_t* persistent);

/* Point to point. */

TUTTI_API tuttiResult_t tuttiSendInit(const void* buffer, size_t count, tuttiDataType_t dtype,
                                      int peer, int tag, tuttiComm_t comm,
                                      const tuttiOptions_t* options, tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiRecvInit(void* buffer, size_t count, tuttiDataType_t dtype, int peer,
                                      int tag, tuttiComm_t comm, const tuttiOptions_t* options,
                                      tuttiPersistent_t* persistent);

#ifdef __cplusplus
}
#endif
