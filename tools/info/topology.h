// The machine as tutti-info shows it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "topology/gpus.h"
#include "topology/machine.h"
#include "topology/nics.h"
#include "topology/placement.h"

namespace tutti::tools {

/// The machine, and the cpus and memory that `ranks` ranks on it would get.
struct TopologyReport {
  Machine machine;
  int ranks = 1;
  Placement placement;
  std::size_t cache_bytes = 0;  ///< Size of a core's level 2 cache; 0 if unknown.
  std::size_t ring_bytes = 0;
  std::optional<MachineGpus> gpus;  ///< None where the machine described is another one.
  std::optional<MachineNics> nics;  ///< None where the GPUs are.
};

/// Examines the machine. `bind` has the format of the configuration's setting; `sys` is a copy of
/// /sys in which GPUs and network interfaces are looked for, or empty.
TopologyReport look(int ranks, const std::string& bind, const std::string& sys);

std::string as_text(const TopologyReport& report);
nlohmann::ordered_json as_json(const TopologyReport& report);

}  // namespace tutti::tools
