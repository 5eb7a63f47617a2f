// Discovery of the machine's GPUs.
#pragma once

#include <string>

#include "topology/gpus.h"

namespace tutti {

/// Says where GPUs are looked for.
struct GpuSources {
  std::string sys = "/sys";                ///< Shows the PCI devices and where they are.
  std::string nvml = "libnvidia-ml.so.1";  ///< Empty if it is not asked.
};

/// Returns the GPUs of NVIDIA that NVML shows and, besides, those of NVIDIA and AMD that the PCI
/// bus shows, with the xGMI links of AMD's that the kernel's driver shows. Where there are none,
/// the result says what was looked for. Never throws.
MachineGpus discover_gpus(const GpuSources& sources = {});

}  // namespace tutti
