// Describes the network interfaces of a machine as plain data.
#pragma once

#include <string>
#include <vector>

namespace tutti {

/// Describes one end of a network interface that is up.
struct NicPort {
  std::string name;  ///< That of the RDMA device ("mlx5_0"), otherwise of the interface ("eth0").
  int number = 1;    ///< The number of the RDMA device's port.
  int megabits = 0;  ///< What it carries in 10^6 bits a second; 0 if the system does not say.
  std::string guid;  ///< The RDMA device's node GUID as hexadecimal digits, or empty.
  bool rdma = false;
};

struct Nic {
  std::string bus;               ///< Its address on the PCI bus, or empty.
  int numa = -1;                 ///< The NUMA node near it, or -1 if the system does not say.
  std::vector<std::string> pci;  ///< The way from the host bridge, as GpuNode::pci.
  std::vector<NicPort> ports;    ///< At least one.
};

struct MachineNics {
  std::vector<Nic> nics;  ///< Those for RDMA first, each kind by name.
  std::string source;     ///< Who told of them, or why nobody did; for people.
};

/// Returns a line for each port, or one that says where interfaces were looked for.
std::string nics_text(const MachineNics& machine);

}  // namespace tutti
