// Describes this machine as a topology file does.
#pragma once

#include <string>

#include "topology/discover_gpus.h"

namespace tutti {

/// Says where the parts of a machine are looked for.
struct TopologySources {
  GpuSources gpus = {};
  std::string cpuinfo = "/proc/cpuinfo";
};

struct DiscoveredTopology {
  /// This is the machine's topology file as NCCL writes it, from which read_nccl_topology() makes a
  /// graph. It describes the NUMA nodes, PCI switches, GPUs with their links, and network
  /// interfaces. There is at least one NUMA node; where the system shows nothing else, it stands
  /// alone.
  std::string xml;
  /// Which machine it is, who told of it, and what was looked for in vain; for people.
  std::string source;
};

/// Discovers this machine. Where HWLOC_XMLFILE or HWLOC_SYNTHETIC describes another one, only its
/// NUMA nodes are known, and of a copy of /sys those that its devices name. Never throws.
DiscoveredTopology discover_topology(const TopologySources& sources = {});

}  // namespace tutti
