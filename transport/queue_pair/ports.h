// Finds the ports of RDMA devices that this machine has, as the kernel's files list them: without
// libibverbs, and without opening a device.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::qp {

struct Port {
  std::string device;
  std::uint8_t number = 1;
  bool ethernet = false;       ///< RoCE; InfiniBand otherwise.
  std::int64_t gigabits = 10;  ///< The rate, in Gb/s.
};

/// Returns the ports that are up, of the devices that `pattern` (TUTTI_RDMA_DEVICES) allows, by the
/// names of the devices. Devices of other kinds than InfiniBand and RoCE are left out.
std::vector<Port> active_ports(std::string_view pattern,
                               const std::string& folder = "/sys/class/infiniband");

}  // namespace tutti::qp
