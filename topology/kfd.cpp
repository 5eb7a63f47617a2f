#include "topology/kfd.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "common/text.h"
#include "topology/first_line.h"

namespace tutti {
namespace {

constexpr std::size_t kMostKfdNodes = 1024, kMostLinks = 16 << 10;  // of all nodes together
constexpr std::uint64_t kXgmi = 11;  // of the driver's types of links
constexpr std::uint64_t kMostParallel = 16;

using Properties = std::map<std::string, std::uint64_t, std::less<>>;

/// Returns the lines "name number" of a file.
Properties properties_of(const std::filesystem::path& path) {
  constexpr std::size_t kMostBytes = 4u << 10;
  const std::string text = short_text(path, kMostBytes);
  Properties found;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos) continue;
    if (const auto value = parse_number<std::uint64_t>(line.substr(blank + 1)))
      found.emplace(line.substr(0, blank), *value);
  }
  return found;
}

std::uint64_t value_of(const Properties& all, std::string_view name) {
  const auto found = all.find(name);
  return found == all.end() ? 0 : found->second;
}

/// Returns a node's address on the PCI bus as the system writes it.
std::string address_of(const Properties& node) {
  const std::uint64_t place = value_of(node, "location_id");
  return fmt::format("{:04x}:{:02x}:{:02x}.{}", value_of(node, "domain"), place >> 8 & 0xff,
                     place >> 3 & 0x1f, place & 7);
}

/// Returns the name of an architecture: 90402 is "gfx942", and 90010 "gfx90a". It is never empty.
std::string architecture_of(const Properties& node) {
  const std::uint64_t version = value_of(node, "gfx_target_version");
  if (version == 0) return "unknown";
  return fmt::format("gfx{}{:x}{:x}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

void add_xgmi_links(const std::filesystem::path& sys, std::vector<GpuNode>& gpus) {
  const std::filesystem::path nodes = sys / "class/kfd/kfd/topology/nodes";
  std::map<std::uint64_t, GpuNode*> by_number;
  std::error_code failed;
  std::filesystem::directory_iterator each(nodes, failed);
  for (std::size_t read = 0; !failed && each != std::filesystem::directory_iterator();
       each.increment(failed)) {
    const auto number = parse_number<std::uint64_t>(each->path().filename().string());
    if (!number || ++read > kMostKfdNodes) continue;
    const Properties node = properties_of(each->path() / "properties");
    const auto gpu = std::find_if(gpus.begin(), gpus.end(), [&](const GpuNode& known) {
      return known.bus == address_of(node);
    });
    if (value_of(node, "simd_count") == 0 || gpu == gpus.end() || !gpu->gcn.empty()) continue;
    gpu->gcn = architecture_of(node);
    by_number.emplace(*number, &*gpu);
  }
  std::size_t links = 0;
  for (const auto& [number, gpu] : by_number) {
    for (std::size_t link = 0; links < kMostLinks; ++link, ++links) {
      const Properties its = properties_of(nodes / std::to_string(number) / "io_links" /
                                           std::to_string(link) / "properties");
      if (its.empty()) break;
      const auto end = by_number.find(value_of(its, "node_to"));
      if (value_of(its, "type") != kXgmi || end == by_number.end() || end->second == gpu) continue;
      // Parallel links are one, of a higher bandwidth than each of them has.
      const std::uint64_t least = value_of(its, "min_bandwidth");
      const std::uint64_t lanes = least == 0 ? 1 : value_of(its, "max_bandwidth") / least;
      gpu->nvlinks.insert(gpu->nvlinks.end(), std::clamp<std::uint64_t>(lanes, 1, kMostParallel),
                          end->second->bus);
    }
  }
}

}  // namespace tutti
