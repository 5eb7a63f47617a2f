// Discovery of the machine's network interfaces.
#pragma once

#include "topology/nics.h"
#include "topology/pci_bus.h"

namespace tutti {

/// Returns the ports of RDMA devices that are active, from where libibverbs reads them
/// (/sys/class/infiniband), and the Ethernet interfaces that are up and belong to other devices. In
/// a container that is shown no device, the interfaces that it has. Never throws.
MachineNics discover_nics(const PciBus& bus);

}  // namespace tutti
