#include "topology/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tutti {
namespace {

// The following names, values and types are those of NVML's binary interface.
using NvmlResult = int;
using NvmlDevice = void*;
struct NvmlPciInfo {
  char legacy_bus_id[16];
  std::uint32_t domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
constexpr NvmlResult kNvmlSuccess = 0;
constexpr unsigned kMostNvLinks = 18;
constexpr unsigned kMostGpus = 4096;  // No machine has so many: one that counts more is broken.
constexpr int kReadByPeer = 0;        // NVML_P2P_CAPS_INDEX_READ
constexpr int kEndIsGpu = 0;          // NVML_NVLINK_DEVICE_TYPE_GPU
constexpr int kPeerAllowed = 0;       // NVML_P2P_STATUS_OK

/// Holds the functions of NVML. Those that older versions lack are null.
struct Nvml {
  NvmlResult (*initialize)() = nullptr;
  NvmlResult (*shutdown)() = nullptr;
  NvmlResult (*count)(unsigned*) = nullptr;
  NvmlResult (*device)(unsigned index, NvmlDevice*) = nullptr;
  NvmlResult (*name)(NvmlDevice, char*, unsigned bytes) = nullptr;
  NvmlResult (*uuid)(NvmlDevice, char*, unsigned bytes) = nullptr;
  NvmlResult (*pci)(NvmlDevice, NvmlPciInfo*) = nullptr;
  NvmlResult (*link_state)(NvmlDevice, unsigned link, int* active) = nullptr;
  NvmlResult (*link_end)(NvmlDevice, unsigned link, NvmlPciInfo*) = nullptr;
  NvmlResult (*link_end_kind)(NvmlDevice, unsigned link, int* kind) = nullptr;
  NvmlResult (*peer_status)(NvmlDevice, NvmlDevice, int index, int* status) = nullptr;
  NvmlResult (*capability)(NvmlDevice, int* major, int* minor) = nullptr;

  explicit Nvml(void* library) {
    find(library, initialize, "nvmlInit_v2");
    find(library, shutdown, "nvmlShutdown");
    find(library, count, "nvmlDeviceGetCount_v2");
    find(library, device, "nvmlDeviceGetHandleByIndex_v2");
    find(library, name, "nvmlDeviceGetName");
    find(library, uuid, "nvmlDeviceGetUUID");
    find(library, pci, "nvmlDeviceGetPciInfo_v3");
    find(library, link_state, "nvmlDeviceGetNvLinkState");
    find(library, link_end, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    find(library, link_end_kind, "nvmlDeviceGetNvLinkRemoteDeviceType");
    find(library, peer_status, "nvmlDeviceGetP2PStatus");
    find(library, capability, "nvmlDeviceGetCudaComputeCapability");
  }
  bool complete() const {
    return initialize != nullptr && shutdown != nullptr && count != nullptr && device != nullptr &&
           name != nullptr && uuid != nullptr && pci != nullptr;
  }

 private:
  template <typename Signature>
  static void find(void* library, Signature*& function, const char* symbol) {
    function = reinterpret_cast<Signature*>(dlsym(library, symbol));
  }
};

/// Returns the address as the system writes it. That of NVML may have more digits for the domain.
std::string address_on_bus(const NvmlPciInfo& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
}

/// The other end of an NVLink that is up.
struct LinkEnd {
  std::string bus;
  bool is_gpu = false;  ///< NVML says that it is a GPU, whether it shows that one or not.
};

std::vector<LinkEnd> ends_of_links(const Nvml& nvml, NvmlDevice device) {
  std::vector<LinkEnd> ends;
  if (nvml.link_state == nullptr || nvml.link_end == nullptr) return ends;
  for (unsigned link = 0; link < kMostNvLinks; ++link) {
    int active = 0;
    NvmlPciInfo end{};
    if (nvml.link_state(device, link, &active) == kNvmlSuccess && active != 0 &&
        nvml.link_end(device, link, &end) == kNvmlSuccess) {
      int kind = -1;
      const bool told =
          nvml.link_end_kind != nullptr && nvml.link_end_kind(device, link, &kind) == kNvmlSuccess;
      ends.push_back({address_on_bus(end), told && kind == kEndIsGpu});
    }
  }
  return ends;
}

/// Returns the ends of a GPU's links, without itself and without GPUs that are not shown: what is
/// left and no GPU is a switch.
std::vector<std::string> shown_ends(const std::vector<LinkEnd>& ends, const GpuNode& own,
                                    const std::vector<GpuNode>& gpus) {
  std::vector<std::string> shown;
  for (const LinkEnd& end : ends) {
    const bool known = std::any_of(gpus.begin(), gpus.end(),
                                   [&](const GpuNode& gpu) { return gpu.bus == end.bus; });
    if (end.bus != own.bus && (known || !end.is_gpu)) shown.push_back(end.bus);
  }
  return shown;
}

/// Returns the numbers of the other GPUs that `own` may not read. One of which NVML does not know
/// counts as one that it may.
std::vector<int> refused_peers(const Nvml& nvml, const std::vector<NvmlDevice>& all,
                               std::size_t own) {
  std::vector<int> refused;
  for (std::size_t peer = 0; nvml.peer_status != nullptr && peer < all.size(); ++peer) {
    int status = kPeerAllowed;
    if (peer != own &&
        nvml.peer_status(all[own], all[peer], kReadByPeer, &status) == kNvmlSuccess &&
        status != kPeerAllowed)
      refused.push_back(static_cast<int>(peer));
  }
  return refused;
}

/// Asks for one GPU and its handle. One without a UUID is described, too.
NvmlResult describe(const Nvml& nvml, unsigned index, NvmlDevice& device, GpuNode& gpu) {
  // The last byte stays 0, also where NVML ends no text.
  char name[97] = {}, uuid[97] = {};
  NvmlPciInfo pci{};
  NvmlResult result = nvml.device(index, &device);
  if (result == kNvmlSuccess) result = nvml.name(device, name, sizeof name - 1);
  if (result == kNvmlSuccess) result = nvml.pci(device, &pci);
  if (result != kNvmlSuccess) return result;
  const bool has_uuid = nvml.uuid(device, uuid, sizeof uuid - 1) == kNvmlSuccess;
  gpu = {address_on_bus(pci), name, has_uuid ? uuid : "", -1, {}};
  int major = 0, minor = 0;
  if (nvml.capability != nullptr && nvml.capability(device, &major, &minor) == kNvmlSuccess &&
      major > 0 && major < 100 && minor >= 0 && minor < 10)
    gpu.sm = 10 * major + minor;
  return kNvmlSuccess;
}

NvmlAnswer ask_opened(const Nvml& nvml, const std::string& library) {
  unsigned count = 0;
  if (const NvmlResult result = nvml.count(&count); result != kNvmlSuccess)
    return {{}, fmt::format("{} does not count the GPUs (error {})", library, result), {}};
  if (count > kMostGpus)
    return {{}, fmt::format("{} is broken: it counts {} GPUs", library, count), {}};
  NvmlAnswer answer;
  std::vector<NvmlDevice> devices;
  for (unsigned index = 0; index < count; ++index) {
    NvmlDevice device = nullptr;
    GpuNode gpu;
    if (const NvmlResult result = describe(nvml, index, device, gpu); result == kNvmlSuccess) {
      answer.gpus.push_back(std::move(gpu));
      devices.push_back(device);
    } else if (answer.gap.empty()) {
      answer.gap = fmt::format("GPU {}: error {}", index, result);
    }
  }
  if (const std::size_t lost = count - devices.size(); lost > 1)
    answer.gap += fmt::format(", nor {} more", lost - 1);
  for (std::size_t own = 0; own < devices.size(); ++own) {
    GpuNode& gpu = answer.gpus[own];
    gpu.nvlinks = shown_ends(ends_of_links(nvml, devices[own]), gpu, answer.gpus);
    gpu.unreachable = refused_peers(nvml, devices, own);
  }
  return answer;
}

/// Returns why the library has not been opened, from what the loader says of it. Of a library that
/// is there, it may be another one that is not.
std::string why_not_opened(const std::string& library) {
  const char* const error = dlerror();
  const std::string_view text = error != nullptr ? error : "unknown error";
  return text.starts_with(library + ": ") && text.ends_with("No such file or directory")
             ? fmt::format("there is no {}", library)
             : fmt::format("{} cannot be loaded: {}", library, text);
}

}  // namespace

NvmlAnswer ask_nvml(const std::string& library) {
  if (library.empty()) return {{}, "NVML is not asked", {}};
  const auto close = [](void* opened) { dlclose(opened); };
  const std::unique_ptr<void, decltype(close)> opened(dlopen(library.c_str(), RTLD_NOW), close);
  if (opened == nullptr) return {{}, why_not_opened(library), {}};
  const Nvml nvml(opened.get());
  if (!nvml.complete()) return {{}, fmt::format("{} is not NVML", library), {}};
  if (const NvmlResult result = nvml.initialize(); result != kNvmlSuccess)
    return {{}, fmt::format("{} does not start (error {})", library, result), {}};
  NvmlAnswer answer = ask_opened(nvml, library);
  nvml.shutdown();
  return answer;
}

}  // namespace tutti
