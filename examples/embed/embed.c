/* A program in C outside tutti's tree: it sums a gradient over all ranks in the background, while
   it does its own work. README.md says how to build it. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

enum { kElements = 1 << 20 };

/* A framework would turn a result into one of its own errors, with the text. */
static void check(tuttiResult_t result, tuttiComm_t comm) {
  if (result == tuttiSuccess) return;
  fprintf(stderr, "%s: %s\n", tuttiGetErrorString(result), tuttiGetLastError(comm));
  exit(1);
}

int main(void) {
  tuttiComm_t comm = NULL;
  check(tuttiCommInitFromEnv(&comm, NULL), NULL);
  int rank = 0, ranks = 0;
  check(tuttiCommRank(comm, &rank), comm);
  check(tuttiCommSize(comm, &ranks), comm);

  float* gradient = malloc(kElements * sizeof *gradient);
  if (gradient == NULL) return 1;
  for (int i = 0; i < kElements; ++i) gradient[i] = (float)(rank + i % 8);

  tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
  options.timeout_ms = 30000;
  tuttiWork_t work = NULL;
  check(
      tuttiAllReduce(gradient, gradient, kElements, tuttiFloat32, tuttiSum, comm, &options, &work),
      comm);
  /* ... the program's own work goes here ... */
  check(tuttiWorkWait(work), comm);
  check(tuttiWorkFree(work), comm);

  int wrong = 0;
  for (int i = 0; i < kElements; ++i)
    wrong += gradient[i] != (float)(ranks * (ranks - 1) / 2 + ranks * (i % 8));
  printf("C: rank %d of %d: gradient[1] is %g, %d wrong\n", rank, ranks, gradient[1], wrong);
  free(gradient);
  check(tuttiCommDestroy(comm), NULL);
  return wrong == 0 ? 0 : 1;
}
