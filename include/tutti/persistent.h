/* tutti: calls that are planned once and started many times, as MPI's persistent operations are. */
#pragma once

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called as its communicator is, and freed before that. It meets any call of its kind on the other
   ranks, persistent or not. */
typedef struct tuttiPersistent* tuttiPersistent_t;

/* As the call that it was made of: tuttiPersistentRun blocks, tuttiPersistentStart returns a work
   at once, and may be called again before the last start is done. */
TUTTI_API tuttiResult_t tuttiPersistentRun(tuttiPersistent_t persistent);
TUTTI_API tuttiResult_t tuttiPersistentStart(tuttiPersistent_t persistent, tuttiWork_t* work);
/* Returns at once: it is run when the group ends, whose options name none. It may be added again,
   and be freed, before that. */
TUTTI_API tuttiResult_t tuttiPersistentAddTo(tuttiPersistent_t persistent, tuttiGroup_t group);
/* What has been started goes on. */
TUTTI_API tuttiResult_t tuttiPersistentFree(tuttiPersistent_t persistent);

/* Each takes what the call takes, is checked and planned now (`usage`), and sends nothing. Buffers,
   and what `options->received` points to, are used by every run; all else is read now. Their
   options name no group: see tuttiPersistentAddTo. */

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
