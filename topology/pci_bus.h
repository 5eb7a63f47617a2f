// Reads devices of the PCI bus from /sys.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

/// Returns the number of an address on the PCI bus, such as "0000:17:00.0": equal ones have equal
/// numbers, however their digits are written. None for any other text.
std::optional<std::uint64_t> pci_number(std::string_view text);

/// Shows the PCI bus of /sys, or of a copy of it. It reads the system with each call.
class PciBus {
 public:
  explicit PciBus(std::filesystem::path sys) : sys_(std::move(sys)) {}

  const std::filesystem::path& sys() const { return sys_; }
  std::filesystem::path folder() const { return sys_ / "bus/pci/devices"; }

  /// Returns the bridges above a device, and the device, from a folder of /sys that is the device's
  /// or leads to it. They begin with the root of a bus, such as "pci0000:16". Where /sys does not
  /// show the root, the way is unknown, and the result empty.
  std::vector<std::string> way_to(const std::filesystem::path& device) const;

  /// Returns the last device of a way as the attributes that a <pci> element of NCCL's topology
  /// files has; what /sys does not say is left out. The link to it is as fast and wide as both the
  /// device and the port above it can be.
  std::vector<std::pair<std::string, std::string>> attributes(
      const std::vector<std::string>& way) const;

 private:
  std::filesystem::path sys_;
};

}  // namespace tutti
