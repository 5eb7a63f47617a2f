// What the control groups that this process is in allow it: version 1, 2, or both side by side.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

#include "common/cpus.h"

namespace tutti {

/// None: no limit, or none that can be read.
struct CgroupLimits {
  std::optional<Cpus> cpus;         ///< cpuset
  std::optional<double> cpu_quota;  ///< Processors' time for each second, for example 2.5.
  std::optional<std::size_t> memory_bytes;
};

/// The tightest of the process's own group and those above it, as far as they are visible here.
/// Never throws: what cannot be read sets no limit. `root` holds proc/ and the mounted groups.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root = "/");

}  // namespace tutti
