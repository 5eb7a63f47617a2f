// Reads topology files of either kind.
#pragma once

#include <string>

#include "topology/fabric.h"

namespace tutti {

/// Returns a fabric of one node, each of whose ports is a rail of its own.
Fabric fabric_of(Graph node);

/// Reads a file: a fabric if its name ends in .json, otherwise NCCL's topology XML of one machine,
/// which fabric_of() makes a fabric. A fabric names its node's file relative to its own folder.
/// Throws `usage` for a file that cannot be read or is malformed.
Fabric read_topology_file(const std::string& path);

}  // namespace tutti
