// Helpers of the collectives' tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "collectives/schedule/semantics.h"

namespace tutti::testing {

inline std::vector<Collective> all_collectives() {
  std::vector<Collective> all;
  for (int what = 0; what < kCollectives; ++what) all.push_back(static_cast<Collective>(what));
  return all;
}

/// Returns every rank's schedule.
inline std::vector<Schedule> plan_all(const Algorithm& algorithm, Collective what, int ranks,
                                      int root = 0) {
  std::vector<Schedule> schedules;
  schedules.reserve(ranks);
  for (int rank = 0; rank < ranks; ++rank)
    schedules.push_back(algorithm.plan({what, rank, ranks, root}));
  return schedules;
}

inline const Algorithm& algorithm_named(std::string_view name) {
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.name == name) return algorithm;
  throw std::invalid_argument("no algorithm is called " + std::string(name));
}

}  // namespace tutti::testing
