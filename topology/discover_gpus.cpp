#include "topology/discover_gpus.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "common/text.h"
#include "topology/first_line.h"
#include "topology/nvml.h"

namespace tutti {
namespace {

/// Returns the maker of a GPU by the numbers of its vendor and class, or nothing if it is no GPU.
std::string_view gpu_maker(const std::string& vendor, const std::string& device_class) {
  const std::string_view kind = std::string_view(device_class).substr(0, 6);
  const bool shows = kind == "0x0300" || kind == "0x0302" || kind == "0x0380";
  if (vendor == "0x10de" && shows) return "NVIDIA";
  if (vendor == "0x1002" && (shows || kind == "0x1200")) return "AMD";
  return {};
}

/// Returns the bridges above a device, and the device, from the path of its folder. They begin with
/// the root of a bus, such as "pci0000:16". Without one the way is unknown, and the result empty.
std::vector<std::string> way_to(const std::filesystem::path& folder) {
  std::vector<std::string> way;
  for (const std::filesystem::path& part : folder) {
    const std::string name = part.string();
    const bool is_root = name.starts_with("pci") && name.find(':') != std::string::npos;
    if (is_root || !way.empty()) way.push_back(name);
  }
  return way;
}

/// Returns the GPUs that the PCI bus shows, in the order of their addresses.
std::vector<GpuNode> gpus_on_bus(const std::filesystem::path& sys) {
  std::vector<GpuNode> gpus;
  std::error_code failed;
  std::filesystem::directory_iterator each(sys / "bus/pci/devices", failed);
  for (; !failed && each != std::filesystem::directory_iterator(); each.increment(failed)) {
    const auto& entry = *each;
    std::error_code unresolved;
    const std::string vendor = first_line(entry.path() / "vendor");
    const std::string_view maker = gpu_maker(vendor, first_line(entry.path() / "class"));
    if (maker.empty()) continue;
    GpuNode gpu;
    gpu.bus = entry.path().filename();
    const std::string device = first_line(entry.path() / "device");
    gpu.name = fmt::format("{} GPU {}:{}", maker, vendor.substr(2),
                           device.size() > 2 ? device.substr(2) : "?");
    gpu.numa = parse_number<int>(first_line(entry.path() / "numa_node")).value_or(-1);
    gpu.pci = way_to(std::filesystem::canonical(entry.path(), unresolved)
                         .lexically_relative(std::filesystem::canonical(sys, unresolved)));
    gpus.push_back(std::move(gpu));
  }
  std::sort(gpus.begin(), gpus.end(),
            [](const GpuNode& a, const GpuNode& b) { return a.bus < b.bus; });
  return gpus;
}

/// Adds to the GPUs of NVML where they are, and the other GPUs of the bus behind them.
std::vector<GpuNode> merge_gpus(std::vector<GpuNode> told, std::vector<GpuNode> on_bus) {
  for (GpuNode& place : on_bus) {
    const auto same = std::find_if(told.begin(), told.end(),
                                   [&](const GpuNode& gpu) { return gpu.bus == place.bus; });
    if (same == told.end()) {
      told.push_back(std::move(place));
      continue;
    }
    same->numa = place.numa;
    same->pci = std::move(place.pci);
  }
  return told;
}

}  // namespace

MachineGpus discover_gpus(const GpuSources& sources) {
  NvmlAnswer nvml = ask_nvml(sources.nvml);
  std::vector<GpuNode> on_bus = gpus_on_bus(sources.sys);
  const std::string bus = sources.sys + "/bus/pci/devices";
  MachineGpus found{merge_gpus(std::move(nvml.gpus), std::move(on_bus)), {}};
  const std::string gap =
      nvml.gap.empty() ? "" : fmt::format(" (which does not describe {})", nvml.gap);
  if (nvml.missing.empty())
    found.source =
        fmt::format("NVML{} and {}{}", gap, bus, found.gpus.empty() ? " show no GPU" : "");
  else
    found.source = found.gpus.empty() ? fmt::format("{}, and {} shows no GPU", nvml.missing, bus)
                                      : fmt::format("{} ({})", bus, nvml.missing);
  return found;
}

}  // namespace tutti
