// Helpers of the collectives' tests.
#pragma once

#include <algorithm>
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
                                      int root = 0, const std::vector<int>& groups = {},
                                      const std::vector<int>& places = {}) {
  std::vector<Schedule> schedules;
  schedules.reserve(ranks);
  for (int rank = 0; rank < ranks; ++rank)
    schedules.push_back(algorithm.plan({what, rank, ranks, root, groups, 0, places}));
  return schedules;
}

/// Goes on to the next sequence of group numbers in which every group first appears after all
/// groups with smaller numbers. The first sequence is all 0; returns false after the last one.
inline bool next_grouping(std::vector<int>& groups) {
  for (auto rank = groups.size(); --rank > 0;) {
    const auto at = groups.begin() + static_cast<std::ptrdiff_t>(rank);
    if (*at <= *std::max_element(groups.begin(), at)) {
      ++*at;
      return true;
    }
    *at = 0;
  }
  return false;
}

/// Returns the number of chunks that a rank sends to ranks of other groups.
inline int chunks_across(const Schedule& schedule, const std::vector<int>& groups) {
  int chunks = 0;
  for (const Lane& lane : schedule.lanes)
    for (const Step& step : lane.steps)
      for (const Operand& to : step.out)
        if (to.place == Place::peer && groups[to.index] != groups[schedule.rank])
          chunks += step.count;
  return chunks;
}

inline const Algorithm& algorithm_named(std::string_view name) {
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.name == name) return algorithm;
  throw std::invalid_argument("no algorithm is called " + std::string(name));
}

}  // namespace tutti::testing
