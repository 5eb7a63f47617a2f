// The simulator. It runs the programs of all ranks on a described machine and counts the time of
// the engine, the channels and the cores, but moves no byte.
//
// The result is deterministic: all numbers are integers, and there is one order of events. All work
// takes time on a core. A rank does a step once its messages have arrived and its slots are free,
// and tries its lanes in turn as the engine does. A core that several ranks share goes to the next
// rank when a rank has nothing to do.
#pragma once

#include <span>
#include <vector>

#include "collectives/planning/machine_costs.h"
#include "collectives/schedule/program.h"

namespace tutti {

/// The machines and cores on which the ranks run.
struct Cluster {
  MachineCosts costs;
  /// The number of each rank's core, over all machines. Ranks of one core take turns.
  std::vector<int> core_of;
  /// The number of each rank's machine. Ranks of one machine share its network link.
  std::vector<int> machine_of;
  LinkKind link;  ///< The link between ranks on different cores of one machine.
  /// Payload memory of a channel in shared memory, which its messages share.
  std::size_t ring_bytes = 0;

  LinkKind link_between(int a, int b) const;
};

/// Describes machines, numbered from 0, with `cores` cores each; neighbouring ranks of a machine
/// are on different cores, which are `link` apart.
Cluster cluster_of(const MachineCosts& costs, std::vector<int> machine_of, int cores, LinkKind link,
                   std::size_t ring_bytes);
/// Describes one machine with all `ranks`.
Cluster one_machine(const MachineCosts& costs, int ranks, int cores, LinkKind link,
                    std::size_t ring_bytes);

/// Returns the time of one call where all ranks make the same call again and again, in the slowest
/// rank, as tutti-perf measures it. `programs[r]` is rank r's program; all are compiled for the
/// same call. Of a call with many pieces the first few are simulated, and the others are assumed to
/// take as long as the last of these. The run time is proportional to the number of steps of all
/// ranks.
Picoseconds simulate(std::span<const Program> programs, const Cluster& cluster);

}  // namespace tutti
