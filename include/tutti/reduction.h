/* tutti: reductions and element types of the program's own, as MPI_Op_create makes them. */
#pragma once

#include <tutti/persistent.h>
#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Any thread may use it. Calls use it until they are done, persistent ones until they are freed. */
typedef struct tuttiReduction* tuttiReduction_t;

/* inout[i] = in[i] op inout[i] for i < count, `in` being what stands to the left. Called with a few
   KiB at a time, neither aligned to more than 16 bytes nor overlapping; by any thread that advances
   the call, several at a time where several calls run. It must not call tutti. Anything but
   tuttiSuccess is `usage` here and on the peers, and ends the communicator. */
typedef tuttiResult_t (*tuttiReduceFunction_t)(const void* in, void* inout, size_t count,
                                               void* context);

/* On elements of 1 to 4096 bytes, which may be copied as bytes. It must be associative, and
   commutative unless the call asks for an algorithm that folds in the order of ranks: "one_shot" or
   "all_pairs". Ranks compare `name`, which is copied, and `element_bytes`. */
TUTTI_API tuttiResult_t tuttiReductionCreate(tuttiReduction_t* reduction, const char* name,
                                             size_t element_bytes, tuttiReduceFunction_t function,
                                             void* context);
TUTTI_API tuttiResult_t tuttiReductionFree(tuttiReduction_t reduction);

/* As the calls without With, in all their forms, with the reduction and its elements in place of
   `dtype` and `op`. */

TUTTI_API tuttiResult_t tuttiAllReduceWith(const void* send, void* recv, size_t count,
                                           tuttiReduction_t reduction, tuttiComm_t comm,
                                           const tuttiOptions_t* options, tuttiWork_t* work);
TUTTI_API tuttiResult_t tuttiReduceWith(const void* send, void* recv, size_t count,
                                        tuttiReduction_t reduction, int root, tuttiComm_t comm,
                                        const tuttiOptions_t* options, tuttiWork_t* work);
TUTTI_API tuttiResult_t tuttiReduceScatterWith(const void* send, void* recv, size_t count,
                                               tuttiReduction_t reduction, tuttiComm_t comm,
                                               const tuttiOptions_t* options, tuttiWork_t* work);
TUTTI_API tuttiResult_t tuttiReduceScatterVWith(const void* send, void* recv, const size_t* counts,
                                                const size_t* displs, tuttiReduction_t reduction,
                                                tuttiComm_t comm, const tuttiOptions_t* options,
                                                tuttiWork_t* work);

TUTTI_API tuttiResult_t tuttiAllReduceWithInit(const void* send, void* recv, size_t count,
                                               tuttiReduction_t reduction, tuttiComm_t comm,
                                               const tuttiOptions_t* options,
                                               tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiReduceWithInit(const void* send, void* recv, size_t count,
                                            tuttiReduction_t reduction, int root, tuttiComm_t comm,
                                            const tuttiOptions_t* options,
                                            tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiReduceScatterWithInit(const void* send, void* recv, size_t count,
                                                   tuttiReduction_t reduction, tuttiComm_t comm,
                                                   const tuttiOptions_t* options,
                                                   tuttiPersistent_t* persistent);
TUTTI_API tuttiResult_t tuttiReduceScatterVWithInit(const void* send, void* recv,
                                                    const size_t* counts, const size_t* displs,
                                                    tuttiReduction_t reduction, tuttiComm_t comm,
                                                    const tuttiOptions_t* options,
                                                    tuttiPersistent_t* persistent);

#ifdef __cplusplus
}
#endif
