// Reads what the kernel's driver for GPUs of AMD says of the links between them.
#pragma once

#include <filesystem>
#include <vector>

#include "topology/gpus.h"

namespace tutti {

/// Adds to GPUs that are known by their address their architecture and their xGMI links, as the
/// folder class/kfd of /sys shows them; nothing where there is none. Never throws.
void add_xgmi_links(const std::filesystem::path& sys, std::vector<GpuNode>& gpus);

}  // namespace tutti
