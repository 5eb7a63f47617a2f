// Reads topology files of either kind.
#pragma once

#include <string>

#include "topology/fabric.h"

namespace tutti {

/// Reads a file: a fabric if its name ends in .json, otherwise NCCL's topology XML of one machine,
/// which is a fabric of one node. A fabric names its node's file relative to its own folder. Throws
/// `usage` for a file that cannot be read or is malformed.
Fabric read_topology_file(const std::string& path);

}  // namespace tutti
