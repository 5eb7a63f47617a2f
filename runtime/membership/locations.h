// Where the ranks of a new communicator run, and what follows from it for their plans: which ranks
// share a machine and its cores, and which are near each other in it.
#pragma once

#include <vector>

#include "rendezvous/agreement.h"
#include "rendezvous/host.h"
#include "runtime/communicator_parts.h"

namespace tutti {

/// Returns where this rank runs. Its place is that of its GPU around the best ring of the machine's
/// GPUs (topology/search/gpu_order.h), or else the number of the package to which it is bound; 0 if
/// neither is known. With a GPU it discovers the machine, unless Config::topology_file describes
/// it; throws `usage` if that file is malformed. A place that is known already stays.
Location own_location(CommunicatorParts& parts);

/// Does that for the ranks of one process, which run where it does: only their GPUs have places.
void place_threads(std::vector<CommunicatorParts>& all);

/// Returns a location for each distinct value of the column. Throws `corrupt`.
std::vector<Location> locations_of(const Texts& column);

/// Fills in what all ranks' locations say: machines, groups, places and cores.
void take_locations(CommunicatorParts& parts, const Texts& column,
                    const std::vector<Location>& locations);

/// Records that the ranks are on several machines, which are numbered anew in the order of their
/// first ranks.
void spread(CommunicatorParts& parts, std::vector<int> machines);

}  // namespace tutti
