#include "topology/discover_gpus.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "common/text.h"
#include "topology/first_line.h"
#include "topology/kfd.h"
#include "topology/nvml.h"
#include "topology/pci_bus.h"

namespace tutti {
namespace {

constexpr std::size_t kMostGpusOnBus = 4096;

/// Returns the maker of a GPU by the numbers of its vendor and class, or nothing if it is no GPU.
std::string_view gpu_maker(const std::string& vendor, const std::string& device_class) {
  const std::string_view kind = std::string_view(device_class).substr(0, 6);
  const bool shows = kind == "0x0300" || kind == "0x0302" || kind == "0x0380";
  if (vendor == "0x10de" && shows) return "NVIDIA";
  if (vendor == "0x1002" && (shows || kind == "0x1200")) return "AMD";
  return {};
}

/// Returns the GPUs that the PCI bus shows, in the order of their addresses.
std::vector<GpuNode> gpus_on_bus(const PciBus& bus) {
  std::vector<GpuNode> gpus;
  std::error_code failed;
  std::filesystem::directory_iterator each(bus.folder(), failed);
  for (; !failed && each != std::filesystem::directory_iterator() && gpus.size() < kMostGpusOnBus;
       each.increment(failed)) {
    const auto& entry = *each;
    const std::string vendor = first_line(entry.path() / "vendor");
    const std::string_view maker = gpu_maker(vendor, first_line(entry.path() / "class"));
    if (maker.empty()) continue;
    GpuNode gpu;
    gpu.bus = entry.path().filename();
    const std::string device = first_line(entry.path() / "device");
    gpu.name = fmt::format("{} GPU {}:{}", maker, vendor.substr(2),
                           device.size() > 2 ? device.substr(2) : "?");
    gpu.numa = parse_number<int>(first_line(entry.path() / "numa_node")).value_or(-1);
    gpu.pci = bus.way_to(entry.path());
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
  std::vector<GpuNode> on_bus = gpus_on_bus(PciBus(sources.sys));
  const std::string bus = PciBus(sources.sys).folder().string();
  MachineGpus found{merge_gpus(std::move(nvml.gpus), std::move(on_bus)), {}};
  add_xgmi_links(sources.sys, found.gpus);
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
