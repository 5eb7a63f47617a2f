// Searches a graph for the rings around which most data flows.
#pragma once

#include <vector>

#include "topology/fabric.h"
#include "topology/search/flow.h"
#include "topology/search/paths.h"

namespace tutti {

/// Is a ring through all GPUs of a machine, or of every machine: then it enters each of them by one
/// of its ports, passes by the GPUs in this order, and leaves it by the same port, so that it stays
/// on that port's rail.
struct Ring {
  std::vector<int> gpus;           ///< The numbers of GPUs; begins with 0 in a ring of one machine.
  int port = -1;                   ///< The number of a port; -1 in a ring of one machine.
  double gb_per_s = 0;             ///< A multiple of 0.001.
  PathKind worst = PathKind::loc;  ///< The worst path within the machine.
};

struct RingPlan {
  std::vector<Ring> rings;  ///< The one with the highest bandwidth comes first.
  double gb_per_s = 0;      ///< Of all rings together.
  /// No rings can carry more: the smallest cut of the links that best paths use.
  double bound_gb_per_s = 0;
  /// No rings of best paths can carry more, by the prices of links; at most the other bound. Equal
  /// to it where the search did not come to an end.
  double ring_bound_gb_per_s = 0;
};

struct RingRequest {
  /// Says for rings through several machines what one rail carries from a machine to the next, in
  /// 10^9 bytes a second, for each port. Empty for rings of one machine.
  std::vector<double> rails;
  int most_rings = 32;
};

/// Returns the request for a fabric: its rails, as far as the links between leaves and spines carry
/// them when each ring passes by the machines in their order.
RingRequest ring_request(const Fabric& fabric);

inline constexpr int kMostRingGpus = 128;
inline constexpr std::int64_t kRingSteps = std::int64_t{1} << 31;

/// Finds rings such that no link is loaded beyond its bandwidth, where each pair of neighbours uses
/// its best path. It solves the linear program over all rings, which it makes one by one as the
/// prices of links ask for them (Gilmore and Gomory 1961); the next ring is a shortest tour. With
/// up to kMostExactPlaces GPUs the tours are the shortest for certain, so that no better rings
/// exist but for what the rounding to 0.001 GB/s and `most_rings` leave out. The result is the same
/// on every rank. Throws `unavailable` for no GPUs, for more than kMostRingGpus, if a GPU cannot be
/// reached from another one, and if the budget does not suffice. One GPU of one machine has no
/// rings.
RingPlan find_rings(const Paths& paths, const RingRequest& request, StepBudget& budget);

}  // namespace tutti
