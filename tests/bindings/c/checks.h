/* The data that the ranks of these tests send, and macros that report what went wrong. */
#pragma once

#include <tutti/tutti.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
/* Callers of the C ABI check codes, not exceptions. */
#define CHECK(condition) \
  if (!(condition)) return __FILE__ ":" TEXT(__LINE__) ": not true: " #condition
#define OK(call) CHECK((call) == tuttiSuccess)

enum { kMostRanks = 4, kCount = 3 };

/* Returns element i of block `block` as rank `rank` sends it. */
static inline int32_t element(int rank, int block, int i) { return 1000 * rank + 10 * block + i; }

static inline void fill(int32_t* data, int rank, int blocks) {
  for (int block = 0; block < blocks; ++block)
    for (int i = 0; i < kCount; ++i) data[block * kCount + i] = element(rank, block, i);
}

/* Returns the sum over all ranks of element i of a block. */
static inline int32_t sum(int ranks, int block, int i) {
  int32_t all = 0;
  for (int rank = 0; rank < ranks; ++rank) all += element(rank, block, i);
  return all;
}

static inline int holds_sum(const int32_t* data, int ranks, int block) {
  for (int i = 0; i < kCount; ++i)
    if (data[i] != sum(ranks, block, i)) return 0;
  return 1;
}

static inline int holds(const int32_t* data, int rank, int block) {
  for (int i = 0; i < kCount; ++i)
    if (data[i] != element(rank, block, i)) return 0;
  return 1;
}
