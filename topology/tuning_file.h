// What this machine costs, kept in a file: measured once by `tutti-perf --tune`, read at each
// start.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "common/environment.h"
#include "common/machine_costs.h"

namespace tutti {

/// What a tuning file is for: another machine's is not used.
struct MachineId {
  std::string model;            ///< Of its processor, in the kernel's words.
  int cpus = 0;                 ///< Online.
  std::size_t cache_bytes = 0;  ///< core_cache_bytes().

  bool operator==(const MachineId&) const = default;
};

/// Reads a few lines of /proc and /sys. `root` holds them.
MachineId this_machine(const std::filesystem::path& root = "/");

/// $XDG_CACHE_HOME/tutti/tuning.json, or ~/.cache/tutti/tuning.json; empty where neither is set.
std::filesystem::path default_tuning_file(Environment environment);

/// Throws `usage` for a file that cannot be read, is damaged, has a number out of its range, or is
/// of another machine: naming the file, the line and the field.
MachineCosts read_tuning_file(const std::filesystem::path& path, const MachineId& machine);

/// The whole file or, throwing `unavailable`, none of it: what was there before stays. Makes the
/// folder.
void write_tuning_file(const std::filesystem::path& path, const MachineCosts& costs,
                       const MachineId& machine);

}  // namespace tutti
