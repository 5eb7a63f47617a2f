// Prices schedules on the graph of a topology.
#pragma once

#include <span>
#include <vector>

#include <tutti/schedule.hpp>

#include "topology/search/paths.h"

namespace tutti {

/// Says what a call takes on a graph, in microseconds. Where each message takes the best path
/// between two GPUs, no call is faster than its busiest link; pieces follow each other without a
/// gap at best, so that the chain of one small piece is added once.
struct GraphPrice {
  double busiest_us = 0;  ///< The load of the link with the largest, divided by its bandwidth.
  double chain_us = 0;    ///< The messages that wait for each other, one after another.
  int link = -1;          ///< The busiest link, an index into Paths::links(); -1 if nothing moves.

  double us() const { return busiest_us + chain_us; }
};

/// Says what one message takes beside the latencies that the graph gives for its links: a kernel on
/// a GPU sees what another one has written over NVLink or PCI after about so long (NCCL's tables of
/// latencies say 0.6 to 1.9 us).
inline constexpr double kMessageUs = 1;

/// Prices the schedules of all ranks for a call of `bytes`: those of the vector, or of all blocks
/// together. Rank r is the GPU with the number `gpus[r]`. The schedules are proved. Throws
/// `unavailable` if there is no path between two GPUs that exchange a message.
GraphPrice price_on_graph(std::span<const Schedule> schedules, const Paths& paths,
                          const std::vector<int>& gpus, double bytes);

}  // namespace tutti
