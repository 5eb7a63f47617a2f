#include "transport/shm/available.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

#include "common/text.h"

namespace tutti::shm {
namespace {

using Bytes = std::uint64_t;

// The names of one cgroup version's files and fields.
struct CgroupFiles {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* idle_cache;
  const char* active_cache;
};
constexpr CgroupFiles kVersion1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                "memory.usage_in_bytes", "total_inactive_file",
                                "total_active_file"};
constexpr CgroupFiles kVersion2{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file",
                                "active_file"};

std::optional<Bytes> number_in(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  return parse_number<Bytes>(text);  // no number where the file says "max"
}

// Returns the value of a line like "name: 123 kB" or "name 123", or 0 where there is none.
Bytes field(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  std::string key;
  Bytes value = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    if (std::istringstream(line) >> key >> value && (key == name || key == std::string(name) + ":"))
      return value;
  }
  return 0;
}

Bytes left_in(const std::string& folder, const CgroupFiles& files) {
  const auto limit = number_in(folder + "/" + files.limit);
  const auto usage = number_in(folder + "/" + files.usage);
  // Where there is no limit, version 1 shows a number of about 2^63 (the greatest number, rounded
  // down to whole pages).
  if (!limit || !usage || *limit > Bytes{1} << 62) return std::numeric_limits<Bytes>::max();
  const std::string statistics = folder + "/memory.stat";
  const Bytes cache = field(statistics, files.idle_cache) + field(statistics, files.active_cache);
  const Bytes used = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, used);
}

// Returns the smallest number of bytes that are left in a group and in all groups above it. Inside
// a container without a cgroup namespace the path is the host's and only the mount itself, where
// the walk ends, is there to be read.
Bytes left_along(const std::string& root, std::string path, const CgroupFiles& files) {
  Bytes left = std::numeric_limits<Bytes>::max();
  for (;;) {
    left = std::min(left, left_in(root + files.mount + path, files));
    if (path.empty()) return left;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

bool names_memory(std::string_view controllers) {
  return fmt::format(",{},", controllers).find(",memory,") != std::string::npos;
}

}  // namespace

std::size_t available_memory(const std::string& root) {
  Bytes left = field(root + "/proc/meminfo", "MemAvailable") * 1024;
  if (left == 0) left = std::numeric_limits<Bytes>::max();  // without /proc the kernel decides
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // number:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers.empty())
      left = std::min(left, left_along(root, path, kVersion2));
    else if (names_memory(controllers))
      left = std::min(left, left_along(root, path, kVersion1));
  }
  return left;
}

std::optional<std::size_t> Allowance::refuse(std::size_t bytes, TimePoint now) {
  constexpr std::chrono::milliseconds kLasts{100};
  constexpr std::size_t kPart = 1024;
  if (now >= until_ || bytes > granted_) {
    const std::size_t available = available_memory(root_);
    if (bytes > available) return available;
    until_ = now + kLasts;
    granted_ = std::max(bytes, available / kPart);
  }
  granted_ -= bytes;
  return std::nullopt;
}

}  // namespace tutti::shm
