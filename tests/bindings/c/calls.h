/* The work of one rank in C: for each test a function that returns null, or where and how it
   failed. */
#pragma once

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef const char* (*RankBody)(tuttiComm_t comm);

const char* reductions_and_broadcast(tuttiComm_t comm);
const char* gathers_and_scatters(tuttiComm_t comm);
const char* blocks_of_different_lengths(tuttiComm_t comm);
const char* sends_and_receives(tuttiComm_t comm);
const char* groups_of_calls(tuttiComm_t comm);
const char* asynchronous_calls(tuttiComm_t comm);
const char* callbacks(tuttiComm_t comm);
const char* persistent_calls(tuttiComm_t comm);
const char* persistent_blocks_of_different_lengths(tuttiComm_t comm);
const char* persistent_sends_and_receives(tuttiComm_t comm);
const char* premultipliers_and_accumulation(tuttiComm_t comm);
const char* accumulation_as_configured(tuttiComm_t comm);
const char* own_reductions(tuttiComm_t comm);
const char* own_algorithms(tuttiComm_t comm);
const char* wrong_algorithms(tuttiComm_t comm);
const char* plans_of_calls(tuttiComm_t comm);
const char* selected_algorithm(const tuttiSelectQuery_t* query, void* context);
const char* selected_calls(tuttiComm_t comm);
const char* parts_of_a_communicator(tuttiComm_t comm);
const char* buffers_of_a_communicator(tuttiComm_t comm);
const char* registered_memory_of_the_program(tuttiComm_t comm);
const char* options_of_a_call(tuttiComm_t comm);
const char* wrong_arguments(tuttiComm_t comm);
const char* mismatched_call(tuttiComm_t comm);
const char* late_rank(tuttiComm_t comm);

/* These make their own communicator from the environment, each in a process of its own. */
const char* rank_of_the_environment(void);
const char* survivor_of_a_killed_rank(void);

#ifdef __cplusplus
}
#endif
