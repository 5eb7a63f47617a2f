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
