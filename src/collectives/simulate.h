// What a call would take: all ranks' programs, run on a described machine. The time of the engine,
// the channels and the cores is counted, no byte is moved.
//
// Deterministic: whole numbers, and one order of events. Everything takes its time on a core: a
// rank does a step once its messages have come and its slots are free, lane by lane in turn as the
// engine does; cores that several ranks share go to the next rank when one finds nothing to do.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "collectives/program.h"
#include "common/machine_costs.h"

namespace tutti {

/// Whom the ranks run on.
struct Cluster {
  MachineCosts costs;
  std::vector<int> core_of;                ///< By rank; ranks of one core take turns.
  std::function<LinkKind(int, int)> link;  ///< Between two ranks.
  std::size_t ring_bytes = 0;              ///< Of a channel: what its messages share.
};

/// `ranks` that share `cores` of one machine, neighbours on different ones, `link` apart.
Cluster one_machine(const MachineCosts& costs, int ranks, int cores, LinkKind link,
                    std::size_t ring_bytes);

/// The time of one call, where all ranks make it again and again, in the slowest rank: what
/// tutti-perf measures. `programs[r]` is rank r's, each compiled for the same call. Of many pieces
/// the first few are run, and the others take as long as the last of those. Takes time in
/// proportion to all steps of all ranks.
Picoseconds simulate(std::span<const Program> programs, const Cluster& cluster);

}  // namespace tutti
