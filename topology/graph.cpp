#include "topology/graph.h"

#include <array>
#include <cassert>
#include <cmath>
#include <set>

namespace tutti {

std::string_view to_string(DeviceKind kind) {
  constexpr std::array<std::string_view, kDeviceKinds> kNames{
      "cpu", "pci", "gpu", "nic", "port", "nv_switch", "net_switch"};
  assert(static_cast<std::size_t>(kind) < kNames.size());
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view to_string(WireKind kind) {
  constexpr std::array<std::string_view, kWireKinds> kNames{"pci", "nvlink", "xgmi",
                                                            "c2c", "cpus",   "net"};
  assert(static_cast<std::size_t>(kind) < kNames.size());
  return kNames[static_cast<std::size_t>(kind)];
}

bool Graph::is_sound() const {
  const int count = static_cast<int>(devices.size());
  std::set<std::string_view> names;
  for (int at = 0; at < count; ++at) {
    const Device& device = devices[static_cast<std::size_t>(at)];
    if (device.parent < -1 || device.parent >= at || device.machine >= machines) return false;
    if (!names.insert(device.name).second) return false;
  }
  for (const Wire& wire : wires) {
    if (wire.from < 0 || wire.from >= count || wire.to < 0 || wire.to >= count) return false;
    if (wire.from == wire.to || !(wire.gb_per_s > 0) || !std::isfinite(wire.gb_per_s)) return false;
    if (!(wire.latency_us >= 0) || !std::isfinite(wire.latency_us)) return false;
  }
  return true;
}

std::vector<int> Graph::all(DeviceKind kind) const {
  std::vector<int> found;
  for (std::size_t at = 0; at < devices.size(); ++at)
    if (devices[at].kind == kind) found.push_back(static_cast<int>(at));
  return found;
}

void connect(Graph& graph, int a, int b, WireKind kind, double gb_per_s, double latency_us) {
  assert(a != b && gb_per_s > 0);
  graph.wires.push_back({a, b, kind, gb_per_s, latency_us, {}});
  graph.wires.push_back({b, a, kind, gb_per_s, latency_us, {}});
}

}  // namespace tutti
