// Decides on which cpus each rank of this machine runs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/machine.h"

namespace tutti {

struct Placement {
  std::vector<Cpus> ranks;  ///< Indexed by rank. Empty if ranks are not bound.
  std::string reason;       ///< The reason why ranks are not bound, as text.
};

/// Chooses the cpus of `ranks` ranks. `bind` is the value of the setting (docs/configuration.md):
/// - "none": ranks are not bound.
/// - "auto": each rank gets a share of the cores that this process may use, neighbouring cores
///   together, and every core is used. Ranks are not bound if the process is bound already, or if
///   binding would not help.
/// - A list of each rank's cpus. Throws `usage` if it cannot be parsed or is too short.
/// All threads of a rank, including the background thread, share the rank's cpus.
Placement place(const Machine& machine, int ranks, std::string_view bind);

/// Throws `usage` if this process may not use all of `cpus`.
void check_usable(const Machine& machine, const Cpus& cpus, int rank);

}  // namespace tutti
