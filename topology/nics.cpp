#include "topology/nics.h"

#include <fmt/format.h>

#include "topology/print.h"

namespace tutti {

std::string nics_text(const MachineNics& machine) {
  if (machine.nics.empty()) return fmt::format("nics     none: {}\n", on_one_line(machine.source));
  std::string text;
  int number = 0;
  for (const Nic& nic : machine.nics)
    for (const NicPort& port : nic.ports) {
      text += fmt::format("net {:<4} {}", number++, on_one_line(port.name));
      if (port.rdma) text += fmt::format(" port {}", port.number);
      if (!nic.bus.empty()) text += ", " + on_one_line(nic.bus);
      text += nic.numa < 0 ? std::string(", no numa node") : fmt::format(", numa {}", nic.numa);
      text += port.megabits == 0 ? std::string(", unknown speed")
                                 : fmt::format(", {:g} Gb/s", port.megabits / 1e3);
      text += port.rdma ? ", RDMA\n" : "\n";
    }
  return text + fmt::format("nets by  {}\n", on_one_line(machine.source));
}

}  // namespace tutti
