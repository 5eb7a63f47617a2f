/* tutti: as what a launcher has started this process. */
#pragma once

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets *launched to 1 if a launcher has started this process as one of its ranks: it has set RANK
   or WORLD_SIZE, or offers PMIx (docs/launching.md); tuttiCommInitFromEnv joins its job then. Else
   to 0: tuttiCommInitFromEnv returns tuttiErrorUsage. Any thread may call it. */
TUTTI_API tuttiResult_t tuttiLaunched(int* launched);
/* Sets *newcomer to 1 if this process is to come to a running job by tuttiCommJoin: no launcher has
   made it a rank, and MASTER_ADDR and MASTER_PORT, or a tcp:// or file:// store in TUTTI_STORE, say
   where the job is. Else to 0. Any thread may call it. */
TUTTI_API tuttiResult_t tuttiNewcomer(int* newcomer);

#ifdef __cplusplus
}
#endif
