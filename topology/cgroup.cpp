#include "topology/cgroup.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "common/text.h"
#include "topology/first_line.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Version 1 writes "no limit" as the largest multiple of the page size in 63 bits.
constexpr std::size_t kNoMemoryLimit = std::size_t{1} << 60;
// Unlike a file of /sys, one with a list of cpus may have more than a page.
constexpr std::size_t kMostListBytes = 64 << 10;

struct Mount {
  std::string root;  // the group that is mounted at `folder`
  std::string folder;
  std::string controllers;  // "cpu,cpuacct"; empty for version 2
};

/// Reads /proc/self/mountinfo, whose lines are "31 23 0:28 <root> <folder> <options> … - <type>
/// <source> <super options>".
std::vector<Mount> read_mounts(const fs::path& root) {
  std::ifstream file(root / "proc/self/mountinfo");
  std::vector<Mount> mounts;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string_view> fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.end() - dash < 4 || dash - fields.begin() < 6) continue;
    const std::string group(fields[3]), folder(fields[4]);
    if (dash[1] == "cgroup2") mounts.push_back({group, folder, ""});
    if (dash[1] == "cgroup") mounts.push_back({group, folder, std::string(dash[3])});
  }
  return mounts;
}

/// Returns whether the options of a mount name all of a group's controllers. A mount of version 2
/// names none.
bool serves(const Mount& mount, const std::string& controllers) {
  if (controllers.empty() || mount.controllers.empty())
    return controllers.empty() && mount.controllers.empty();
  const std::vector<std::string_view> options = split(mount.controllers, ',');
  const std::vector<std::string_view> wanted = split(controllers, ',');
  return std::all_of(wanted.begin(), wanted.end(), [&](std::string_view name) {
    return std::find(options.begin(), options.end(), name) != options.end();
  });
}

/// Returns the group's path below its mount. A container may mount its own group as the root while
/// /proc gives the group's name as seen from outside. The mount is then the group.
fs::path below(const Mount& mount, const std::string& group) {
  const std::string prefix = mount.root == "/" ? "" : mount.root;
  if (!group.starts_with(prefix) || group.find("..") != std::string::npos) return {};
  const fs::path rest(group.substr(prefix.size()));
  return rest.relative_path();
}

template <typename T>
void tighten(std::optional<T>& limit, T found) {
  limit = limit ? std::min(*limit, found) : found;
}

void read_quota(std::string_view quota, std::string_view period, CgroupLimits& into) {
  const auto used = parse_number<long>(quota), of = parse_number<long>(period);
  if (used && of && *used > 0 && *of > 0)
    tighten(into.cpu_quota, static_cast<double>(*used) / static_cast<double>(*of));
}

/// Reads the limits of one group. The files have different names in versions 1 and 2.
void read_group(const fs::path& folder, CgroupLimits& into) {
  const std::string cpu_max = first_line(folder / "cpu.max");
  const std::vector<std::string_view> quota = split(cpu_max, ' ');
  if (quota.size() == 2) read_quota(quota[0], quota[1], into);
  read_quota(first_line(folder / "cpu.cfs_quota_us"), first_line(folder / "cpu.cfs_period_us"),
             into);
  for (const char* name : {"memory.max", "memory.limit_in_bytes"})
    if (const auto bytes = parse_number<std::size_t>(first_line(folder / name));
        bytes && *bytes < kNoMemoryLimit)
      tighten(into.memory_bytes, *bytes);
  for (const char* name : {"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"})
    if (const auto cpus = parse_cpus(first_line(folder / name, kMostListBytes));
        cpus && !cpus->empty())
      into.cpus = into.cpus ? intersect(*into.cpus, *cpus) : *cpus;
}

}  // namespace

CgroupLimits read_cgroup_limits(const fs::path& root) {
  CgroupLimits limits;
  const std::vector<Mount> mounts = read_mounts(root);
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:memory:/a/b"; in version 2 "0::/a/b"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const auto mount = std::find_if(mounts.begin(), mounts.end(),
                                    [&](const Mount& m) { return serves(m, controllers); });
    if (mount == mounts.end()) continue;
    const fs::path folder = root / fs::path(mount->folder).relative_path();
    fs::path group = below(*mount, line.substr(second + 1));
    for (; !group.empty(); group = group.parent_path()) read_group(folder / group, limits);
    read_group(folder, limits);
  }
  return limits;
}

}  // namespace tutti
