/* tutti: what it plans for a call, and schedules from files. docs/selection.md says how an
   algorithm is chosen, and docs/planning.md what files of schedules hold. */
#pragma once

#include <tutti/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What one algorithm would take for a call. This struct does not grow. */
typedef struct tuttiPrice_t {
  const char* algorithm;
  size_t message_bytes; /* the largest message that the call would use */
  double predicted_us;  /* microseconds; negative for one rank, and for very many */
  int chosen;           /* not 0 if a call that names no algorithm uses this one */
} tuttiPrice_t;

/* Sets *prices to an array of those *number algorithms of tutti's own that can serve a call of
   `count` elements, the fastest first; they are the same on every rank. None is chosen where a file
   of schedules serves the call. `root` is 0 if the collective has none. The array
   belongs to `comm`, and is valid until the next call of this function for it. */
TUTTI_API tuttiResult_t tuttiCommPrices(tuttiComm_t comm, tuttiCollective_t what, size_t count,
                                        tuttiDataType_t dtype, tuttiOp_t op, int root,
                                        const tuttiPrice_t** prices, int* number);
/* Sets *text to such a call in words: its algorithm, the size of its messages, and this rank's
   schedule. The text belongs to `comm`, and is valid until the next call of this function for it.
 */
TUTTI_API tuttiResult_t tuttiCommExplain(tuttiComm_t comm, tuttiCollective_t what, size_t count,
                                         tuttiDataType_t dtype, tuttiOp_t op, int root,
                                         const char** text);
/* Adds the algorithms of a file of schedules, or of a folder's for this number of ranks. Every rank
   adds the same. tuttiErrorUsage for a malformed or wrong one, and for a name that is taken. */
TUTTI_API tuttiResult_t tuttiCommAddSchedules(tuttiComm_t comm, const char* path);

#ifdef __cplusplus
}
#endif
