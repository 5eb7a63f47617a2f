#include "topology/gpus.h"

#include <algorithm>
#include <cassert>

namespace tutti {
namespace {

bool is_gpu(const MachineGpus& machine, const std::string& bus) {
  return std::any_of(machine.gpus.begin(), machine.gpus.end(),
                     [&](const GpuNode& gpu) { return gpu.bus == bus; });
}

/// Returns whether an NVLink ends at something that is no GPU, which is an NVSwitch. All switches
/// of a machine are one fabric.
bool has_switch(const MachineGpus& machine, const GpuNode& gpu) {
  return std::any_of(gpu.nvlinks.begin(), gpu.nvlinks.end(),
                     [&](const std::string& end) { return !is_gpu(machine, end); });
}

bool ends_at(const std::vector<std::string>& links, const std::string& bus) {
  return std::find(links.begin(), links.end(), bus) != links.end();
}

}  // namespace

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

GpuPath path_between(const MachineGpus& machine, std::size_t a, std::size_t b) {
  assert(a != b && a < machine.gpus.size() && b < machine.gpus.size());
  const GpuNode &one = machine.gpus[a], &other = machine.gpus[b];
  if (ends_at(one.nvlinks, other.bus) || ends_at(other.nvlinks, one.bus) ||
      (has_switch(machine, one) && has_switch(machine, other)))
    return GpuPath::nvl;
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
