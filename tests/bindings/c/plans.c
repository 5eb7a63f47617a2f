#include <tutti/launch.h>
#include <tutti/plans.h>

#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "checks.h"

const char* plans_of_calls(tuttiComm_t comm) {
  const tuttiPrice_t* prices = NULL;
  int number = 0;
  OK(tuttiCommPrices(comm, tuttiCollectiveAllReduce, 1000, tuttiFloat32, tuttiSum, 0, &prices,
                     &number));
  CHECK(number > 1);
  int chosen = 0;
  for (int i = 0; i < number; ++i) {
    CHECK(strlen(prices[i].algorithm) > 0 && prices[i].message_bytes > 0);
    CHECK(i == 0 || prices[i].predicted_us >= prices[i - 1].predicted_us);
    if (prices[i].chosen) chosen = i + 1;
  }
  CHECK(chosen > 0);
  const char* text = NULL;
  OK(tuttiCommExplain(comm, tuttiCollectiveAllReduce, 1000, tuttiFloat32, tuttiSum, 0, &text));
  CHECK(strstr(text, prices[chosen - 1].algorithm) != NULL);

  CHECK(tuttiCommPrices(comm, tuttiCollectiveAllReduce, 1, tuttiFloat32, tuttiSum, 0, NULL,
                        &number) == tuttiErrorUsage);
  CHECK(tuttiCommPrices(comm, (tuttiCollective_t)9, 1, tuttiFloat32, tuttiSum, 0, &prices,
                        &number) == tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(NULL), "no collective 9") != NULL);
  CHECK(tuttiCommExplain(comm, tuttiCollectiveBroadcast, 1, tuttiFloat32, tuttiSum, 99, &text) ==
        tuttiErrorUsage);
  CHECK(tuttiCommExplain(NULL, tuttiCollectiveBarrier, 0, tuttiFloat32, tuttiSum, 0, &text) ==
        tuttiErrorUsage);
  CHECK(tuttiCommAddSchedules(comm, NULL) == tuttiErrorUsage);
  CHECK(tuttiCommAddSchedules(comm, "/nowhere.xml") == tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(NULL), "/nowhere.xml") != NULL);

  int launched = -1, newcomer = -1;
  OK(tuttiLaunched(&launched));
  OK(tuttiNewcomer(&newcomer));
  CHECK(launched == (getenv("RANK") != NULL) && newcomer == 0);
  CHECK(tuttiLaunched(NULL) == tuttiErrorUsage && tuttiNewcomer(NULL) == tuttiErrorUsage);
  return NULL;
}

/* Selects `ring` for large all_reduces, something that is no algorithm for barriers, and leaves
   other calls to tutti. */
const char* selected_algorithm(const tuttiSelectQuery_t* query, void* context) {
  if (query->size != sizeof *query || strcmp(context, "context") != 0) return "wrong query";
  if (query->what == tuttiCollectiveBarrier) return "none";
  if (query->what != tuttiCollectiveAllReduce || query->bytes < 4000) return NULL;
  const int right = query->dtype == tuttiFloat32 && query->op == tuttiMax && query->root == 0 &&
                    query->count == 1000 && query->bytes == 4000 && query->ranks == 2 &&
                    query->accumulate == tuttiAccumulateF32;
  return right ? "ring" : "wrong query";
}

const char* selected_calls(tuttiComm_t comm) {
  float values[1000] = {0};
  OK(tuttiAllReduce(values, values, 1000, tuttiFloat32, tuttiMax, comm, NULL, NULL));
  OK(tuttiAllReduce(values, values, 10, tuttiFloat32, tuttiSum, comm, NULL, NULL));
  const char* text = NULL;
  OK(tuttiCommExplain(comm, tuttiCollectiveAllReduce, 1000, tuttiFloat32, tuttiMax, 0, &text));
  CHECK(strstr(text, "by algorithm ring") != NULL);
  CHECK(tuttiBarrier(comm, NULL, NULL) == tuttiErrorUsage);
  CHECK(strstr(tuttiGetLastError(comm), "none") != NULL);
  return NULL;
}
