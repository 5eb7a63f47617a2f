// Writes schedules for the graph of a topology.
#pragma once

#include <span>
#include <vector>

#include <tutti/schedule.hpp>

#include "topology/search/forest.h"
#include "topology/search/paths.h"

namespace tutti {

struct SynthesisRequest {
  Collective what = Collective::all_reduce;
  int root = 0;        ///< Of broadcast and reduce.
  int most_trees = 8;  ///< Of each rank that is a root; at least 1.
};

/// Schedules, and the trees along which they move data: from each root to all ranks, or the other
/// way where they reduce.
struct Synthesis {
  Forest forest;
  std::vector<Schedule> schedules;  ///< One for each GPU of the graph.
};

/// Returns whether there is a synthesis of a collective: all_gather, reduce_scatter, all_reduce,
/// broadcast and reduce.
bool can_synthesize(Collective what);

/// Writes schedules that are throughput-optimal as far as pack_forest() comes to its bound (Zhao et
/// al., "ForestColl", 2024), and proves them, in place and out of place. The result is the same on
/// every rank. Throws `unavailable` as pack_forest() does, and if the schedules are too large for
/// the verifier, and `usage` for a collective that cannot be synthesized or a root that is no GPU.
Synthesis synthesize(const Paths& paths, const SynthesisRequest& request, StepBudget& budget);

/// Returns the schedules that move each part of the data along one tree, without a proof. `trees`
/// are those of the first root, then those of the next, `trees_of_root` each. Every rank is a root,
/// except in broadcast and reduce, which have one.
std::vector<Schedule> schedules_of(std::span<const SpanningTree> trees, Collective what, int ranks);

}  // namespace tutti
