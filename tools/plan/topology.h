// The topology that a command of tutti-plan is about.
#pragma once

#include <string>

#include "topology/fabric.h"

namespace tutti::tools {

struct NamedTopology {
  Fabric fabric;
  std::string name;   ///< That of its file without the folder and the ending, or "here".
  std::string title;  ///< Which one it is, for people; empty if the command line has named it.
};

/// Returns the topology of the file; where `path` is empty that of TUTTI_TOPOLOGY_FILE, or else
/// this machine's, with the devices of the copy of /sys that `sys` names if it is not empty. Throws
/// `usage` for a file that cannot be read or is malformed, or if `sys` is no folder.
NamedTopology topology_of(const std::string& path, const std::string& sys = {});

}  // namespace tutti::tools
