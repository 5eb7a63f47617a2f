/* tutti: reductions and element types of the program's own, comparable to MPI_Op_create. */
#pragma once

#include <tutti/persistent.h>
#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A reduction of the program. Any thread may use it. It must exist until the calls that use it have
   ended, and until the persistent calls that use it have been freed. */
typedef struct tuttiReduction* tuttiReduction_t;

/* Computes inout[i] = in[i] op inout[i] for i < count; `in` is the left operand. The library calls
   it with a few KiB at a time. `in` and `inout` do not overlap and are aligned to at most 16 bytes.
   Any thread that advances a call may call it, and several threads do so at once if several calls
   are under way. It must not call tutti. A result other than tuttiSuccess is tuttiErrorUsage on
   this rank and its peers, and ends the communicator. */
typedef tuttiResult_t (*tuttiReduceFunction_t)(const void* in, void* inout, size_t count,
                                               void* context);

/* Makes a reduction of elements of 1 to 4096 bytes that may be copied bytewise. The function must
   be associative; it must also be commutative unless the call asks for an algorithm that reduces in
   the order of ranks, "one_shot" or "all_pairs". `name` is copied. Ranks compare `name` and
   `element_bytes`. */
TUTTI_API tuttiResult_t tuttiReductionCreate(tuttiReduction_t* reduction, const char* name,
                                             size_t element_bytes, tuttiReduceFunction_t function,
                                             void* context);
TUTTI_API tuttiResult_t tuttiReductionFree(tuttiReduction_t reduction);

/* The following functions are the calls of the same names without "With", in all their forms, with
   a reduction and its elements instead of `dtype` and `op`. */

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
