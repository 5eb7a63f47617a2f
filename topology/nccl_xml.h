// NCCL's topology files, as NCCL_TOPO_FILE names them and NCCL_TOPO_DUMP_FILE writes them; RCCL's
// have <xgmi> in place of <nvlink>.
#pragma once

#include <string>

#include "topology/graph.h"

namespace tutti {

/// Limits of what is read: devices of a file, links of a GPU, and nested PCI switches.
inline constexpr int kMostDevices = 1 << 16;
inline constexpr int kMostGpuLinks = 1024;
inline constexpr int kMostNestedSwitches = 64;

/// Reads the content of a file; `name` is the file's name in errors. Bandwidths are those that NCCL
/// and RCCL assume for such a device (NCCL 2.30 `src/graph/topo.h`, `topo.cc`; RCCL's `topo.h`): of
/// PCI by speed and width, of NVLink and xGMI by the GPU's generation, between NUMA nodes by the
/// processor's. NVSwitches are one device, as in NCCL. Links to GPUs that the file does not have
/// are left out. Throws `usage` with the line for a malformed file.
Graph read_nccl_topology(const std::string& name, std::string text);

/// Returns the file of a graph that such a file described: read again, it gives an equal graph.
/// Throws `usage` for a graph of several machines or without the elements of a file.
std::string write_nccl_topology(const Graph& graph);

}  // namespace tutti
