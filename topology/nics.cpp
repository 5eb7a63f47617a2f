#include "topology/nics.h"

#include <fmt/format.h>

#include "common/text.h"

namespace tutti {

std::string nics_text(const MachineNics& machine) {
  if (machine.nics.empty()) return fmt::format("nics     none: {}\n", machine.source);
  std::string text;
  int number = 0;
  for (const Nic& nic : machine.nics)
    for (const NicPort& port : nic.ports) {
      text += fmt::format("net {:<4} {}", number++, escape_controls(port.name));
      if (port.rdma) text += fmt::format(" port {}", port.number);
      if (!nic.bus.empty()) text += ", " + escape_controls(nic.bus);
      text += nic.numa < 0 ? std::string(", no numa node") : fmt::format(", numa {}", nic.numa);
      text += port.megabits == 0 ? std::string(", unknown speed")
                                 : fmt::format(", {:g} Gb/s", port.megabits / 1e3);
      text += port.rdma ? ", RDMA\n" : "\n";
    }
  return text + fmt::format("nets by  {}\n", machine.source);
}

}  // namespace tutti
