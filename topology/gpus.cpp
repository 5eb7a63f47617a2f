#include "topology/gpus.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <utility>

namespace tutti {
std::string_view to_string(GpuPath path) {
  switch (path) {
    case GpuPath::nvl: return "NVL";
    case GpuPath::pix: return "PIX";
    case GpuPath::pxb: return "PXB";
    case GpuPath::phb: return "PHB";
    case GpuPath::sys: break;
  }
  return "SYS";
}

GpuPaths::GpuPaths(const MachineGpus& machine) : machine_(machine) {
  std::map<std::string_view, std::size_t> numbers;
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) numbers.try_emplace(machine.gpus[i].bus, i);
  for (const GpuNode& gpu : machine.gpus) {
    Ends ends{numbers.at(gpu.bus), {}, false, gpu.unreachable};
    // What is no GPU is an NVSwitch. All switches of a machine are one fabric.
    for (const std::string& end : gpu.nvlinks) {
      const auto peer = numbers.find(end);
      if (peer != numbers.end()) ends.peers.push_back(peer->second);
      ends.has_switch = ends.has_switch || peer == numbers.end();
    }
    std::sort(ends.peers.begin(), ends.peers.end());
    std::sort(ends.refused.begin(), ends.refused.end());
    ends_.push_back(std::move(ends));
  }
}

bool GpuPaths::open(std::size_t a, std::size_t b) const {
  assert(a != b && a < ends_.size() && b < ends_.size());
  const auto refuses = [&](std::size_t own, std::size_t peer) {
    const std::vector<int>& refused = ends_[own].refused;
    return std::binary_search(refused.begin(), refused.end(), static_cast<int>(peer));
  };
  return !refuses(a, b) && !refuses(b, a);
}

GpuPath GpuPaths::between(std::size_t a, std::size_t b) const {
  assert(a != b && a < ends_.size() && b < ends_.size());
  const auto linked = [&](const Ends& own, const Ends& peer) {
    return std::binary_search(own.peers.begin(), own.peers.end(), peer.number);
  };
  if (linked(ends_[a], ends_[b]) || linked(ends_[b], ends_[a]) ||
      (ends_[a].has_switch && ends_[b].has_switch))
    return GpuPath::nvl;
  const GpuNode &one = machine_.gpus[a], &other = machine_.gpus[b];
  if (one.pci.empty() || other.pci.empty())
    return one.numa >= 0 && one.numa == other.numa ? GpuPath::phb : GpuPath::sys;
  const auto parted =
      std::mismatch(one.pci.begin(), one.pci.end(), other.pci.begin(), other.pci.end());
  const auto shared = parted.first - one.pci.begin();
  // The ways part below a bridge: in it, each goes to a port of the switch, and on to the GPU.
  constexpr std::ptrdiff_t kOfOneSwitch = 2;
  if (shared > 1)
    return std::max(one.pci.end() - parted.first, other.pci.end() - parted.second) <= kOfOneSwitch
               ? GpuPath::pix
               : GpuPath::pxb;
  return one.numa == other.numa ? GpuPath::phb : GpuPath::sys;
}

}  // namespace tutti
