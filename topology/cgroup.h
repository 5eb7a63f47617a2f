// The limits that the control groups of this process set: version 1, version 2, or both side by
// side.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

#include "common/cpus.h"

namespace tutti {

/// A member without a value means that there is no limit, or none that can be read.
struct CgroupLimits {
  std::optional<Cpus> cpus;         ///< cpuset
  std::optional<double> cpu_quota;  ///< In seconds of processor time per second, for example 2.5.
  std::optional<std::size_t> memory_bytes;
};

/// Returns the tightest limits of the process's own group and of the groups above it, as far as
/// they are visible to this process. Never throws: a file that cannot be read sets no limit. `root`
/// is the folder that contains proc/ and the mounted groups.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root = "/");

}  // namespace tutti
