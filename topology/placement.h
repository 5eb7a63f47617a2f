// Which processors each rank of this machine gets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/machine.h"

namespace tutti {

struct Placement {
  std::vector<Cpus> ranks;  ///< Empty: ranks are not bound.
  std::string reason;       ///< Why not, in words.
};

/// `bind` is what the setting says (docs/configuration.md):
/// - "none";
/// - "auto": shares of the cores that this process may use, all of them, neighbours together; not
///   bound where somebody has bound us already and where it would help nobody;
/// - a list of each rank's cpus. Throws `usage` where it is none, or too short.
/// All of a rank's threads share its cpus, that of the background too.
Placement place(const Machine& machine, int ranks, std::string_view bind);

/// Throws `usage` where this process may not use all of `cpus`.
void check_usable(const Machine& machine, const Cpus& cpus, int rank);

}  // namespace tutti
