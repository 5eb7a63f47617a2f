// What a call would take: all ranks' programs, run on a described machine. The time of the engine,
// the channels and the cores is counted, no byte is moved.
//
// Deterministic: whole numbers, and one order of events. Everything takes its time on a core: a
// rank does a step once its messages have come and its slots are free, lane by lane in turn as the
// engine does; cores that several ranks share go to the next rank when one finds nothing to do.
#pragma once

#include <span>
#include <vector>

#include "collectives/schedule/program.h"
#include "common/machine_costs.h"

namespace tutti {

/// What the ranks run on.
struct Cluster {
  MachineCosts costs;
  std::vector<int> core_of;     ///< By rank; ranks of one core take turns.
  std::vector<int> machine_of;  ///< By rank; of all cores. Ranks of one share its line to others.
  LinkKind link;                ///< Between ranks on different cores of one machine.
  std::size_t ring_bytes = 0;   ///< Of a channel in shared memory: what its messages share.

  LinkKind link_between(int a, int b) const;
};

/// Ranks on machines numbered from 0, of `cores` each; neighbours on different ones, `link` apart.
Cluster cluster_of(const MachineCosts& costs, std::vector<int> machine_of, int cores, LinkKind link,
                   std::size_t ring_bytes);
/// All `ranks` on one.
Cluster one_machine(const MachineCosts& costs, int ranks, int cores, LinkKind link,
                    std::size_t ring_bytes);

/// The time of one call, where all ranks make it again and again, in the slowest rank: what
/// tutti-perf measures. `programs[r]` is rank r's, each compiled for the same call. Of many pieces
/// the first few are run, and the others take as long as the last of those. Takes time in
/// proportion to all steps of all ranks.
Picoseconds simulate(std::span<const Program> programs, const Cluster& cluster);

}  // namespace tutti
