// Keeps the costs of this machine in a file: `tutti-perf --tune` measures them once, and each start
// reads them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "collectives/planning/machine_costs.h"
#include "common/environment.h"

namespace tutti {

/// Identifies the machine that a tuning file is for. The file of another machine is refused.
struct MachineId {
  std::string model;            ///< The kernel's name of its processor.
  int cpus = 0;                 ///< The number of cpus that are online.
  std::size_t cache_bytes = 0;  ///< The value of core_cache_bytes().

  bool operator==(const MachineId&) const = default;
};

/// Returns this machine, from a few lines of /proc and /sys. `root` is the folder that contains
/// these two.
MachineId this_machine(const std::filesystem::path& root = "/");

/// Returns $XDG_CACHE_HOME/tutti/tuning.json, or else ~/.cache/tutti/tuning.json, or an empty path
/// if neither variable is set.
std::filesystem::path default_tuning_file(Environment environment);

/// Throws `usage` if the file cannot be read, is damaged, has a number out of its range, or is for
/// another machine. The error names the file, the line and the field.
MachineCosts read_tuning_file(const std::filesystem::path& path, const MachineId& machine);

/// Writes the whole file, or throws `unavailable` and leaves the previous file as it was. Creates
/// the folder if necessary.
void write_tuning_file(const std::filesystem::path& path, const MachineCosts& costs,
                       const MachineId& machine);

}  // namespace tutti
