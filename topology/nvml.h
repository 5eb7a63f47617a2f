// Asks NVIDIA's management library for GPUs. Nothing links it.
#pragma once

#include <string>
#include <vector>

#include "topology/gpus.h"

namespace tutti {

/// Holds the GPUs that NVML shows, without their places in the machine.
struct NvmlAnswer {
  std::vector<GpuNode> gpus;
  std::string missing;  ///< Why there is no answer; empty if there is one.
  std::string gap;      ///< Which GPUs it counts and does not describe; empty if there are none.
};

/// Loads `library` and asks it, unless the name is empty. Never throws.
NvmlAnswer ask_nvml(const std::string& library);

}  // namespace tutti
