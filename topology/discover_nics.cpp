#include "topology/discover_nics.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "common/text.h"
#include "topology/first_line.h"

namespace tutti {
namespace {

constexpr std::size_t kMostNics = 4096;
constexpr int kMostMegabits = 100'000'000;

/// Returns at most so many names in a folder of /sys, sorted by their length and then by their
/// letters, which puts mlx5_10 behind mlx5_9.
std::vector<std::string> names_in(const std::filesystem::path& folder, std::size_t most) {
  std::vector<std::string> names;
  std::error_code failed;
  std::filesystem::directory_iterator each(folder, failed);
  for (; !failed && each != std::filesystem::directory_iterator() && names.size() < most;
       each.increment(failed))
    names.push_back(each->path().filename());
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), std::string_view(a)) < std::pair(b.size(), std::string_view(b));
  });
  return names;
}

/// Fills in where an interface is, from the folder of its device.
Nic placed(const PciBus& bus, const std::filesystem::path& device) {
  Nic nic;
  nic.pci = bus.way_to(device);
  if (nic.pci.size() < 2) nic.pci.clear();
  if (nic.pci.empty()) return nic;
  nic.bus = nic.pci.back();
  nic.numa = parse_number<int>(first_line(bus.folder() / nic.bus / "numa_node")).value_or(-1);
  return nic;
}

/// Returns the speed of an RDMA port, which is written as "200 Gb/sec (4X HDR)".
int megabits_of(const std::string& rate) {
  double gigabits = 0;
  std::from_chars(rate.data(), rate.data() + rate.size(), gigabits);
  return gigabits > 0 && gigabits * 1000 <= kMostMegabits ? static_cast<int>(gigabits * 1000) : 0;
}

/// Returns the active ports of a device. `left` is how many may still be looked at, of all devices.
std::vector<NicPort> rdma_ports(const std::filesystem::path& device, const std::string& name,
                                std::size_t& left) {
  std::vector<NicPort> ports;
  std::string guid = first_line(device / "node_guid");
  guid.erase(std::remove(guid.begin(), guid.end(), ':'), guid.end());
  for (const std::string& number : names_in(device / "ports", left)) {
    --left;
    const std::filesystem::path port = device / "ports" / number;
    if (!first_line(port / "state").ends_with("ACTIVE")) continue;
    ports.push_back({name, parse_number<int>(number).value_or(1),
                     megabits_of(first_line(port / "rate")), guid, true});
  }
  return ports;
}

/// Returns whether an interface is up, and is neither loopback nor a bridge of other interfaces.
bool is_usable(const std::filesystem::path& interface) {
  constexpr std::string_view kEthernet = "1";  // of the kernel's ARPHRD numbers
  std::error_code unknown;
  return first_line(interface / "operstate") == "up" &&
         first_line(interface / "type") == kEthernet &&
         !std::filesystem::exists(interface / "bridge", unknown);
}

}  // namespace

MachineNics discover_nics(const PciBus& bus) {
  MachineNics found;
  const std::filesystem::path rdma = bus.sys() / "class/infiniband", net = bus.sys() / "class/net";
  std::size_t left = kMostNics;
  for (const std::string& name : names_in(rdma, kMostNics)) {
    Nic nic = placed(bus, rdma / name / "device");
    nic.ports = rdma_ports(rdma / name, name, left);
    if (!nic.ports.empty()) found.nics.push_back(std::move(nic));
  }
  const auto is_rdma = [&](const Nic& nic) {
    return std::any_of(found.nics.begin(), found.nics.end(),
                       [&](const Nic& known) { return !nic.bus.empty() && known.bus == nic.bus; });
  };
  std::vector<Nic> devices, others;
  for (const std::string& name : names_in(net, kMostNics)) {
    if (!is_usable(net / name)) continue;
    Nic nic = placed(bus, net / name / "device");
    const int speed = parse_number<int>(first_line(net / name / "speed")).value_or(0);
    const bool known = speed > 0 && speed <= kMostMegabits;
    nic.ports = {{name, 1, known ? speed : 0, "", false}};
    if (is_rdma(nic)) continue;
    (nic.bus.empty() ? others : devices).push_back(std::move(nic));
  }
  if (found.nics.empty() && devices.empty()) devices = std::move(others);
  for (Nic& nic : devices) found.nics.push_back(std::move(nic));
  found.source = fmt::format("{} and {}{}", rdma.string(), net.string(),
                             found.nics.empty() ? " show no interface that is up" : "");
  return found;
}

}  // namespace tutti
