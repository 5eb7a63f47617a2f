// Stands in for NVIDIA's management library (libnvidia-ml.so.1). FAKE_NVML has a line for each GPU:
// its address, its name, its UUID, the ends of its NVLinks (a * before one says that it is a GPU),
// and the GPUs that it may not access.
// The lists have commas, and "-" is an empty one. A UUID "-" is one that it does not tell, a name
// "lost" is that of a GPU without a handle, and one "endless" fills all that there is for a name.
// FAKE_NVML_ERROR is what nvmlInit returns, and FAKE_NVML_COUNT the number of GPUs if it is wrong.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kInvalidArgument = 2, kNotSupported = 3, kGpuIsLost = 15;

struct PciInfo {
  char legacy_bus_id[16];
  std::uint32_t domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

struct FakeGpu {
  std::string bus, name, uuid;
  std::vector<std::string> links, refused;
};

std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream all(text);
  for (std::string part; text != "-" && std::getline(all, part, ',');) parts.push_back(part);
  return parts;
}

std::vector<FakeGpu>& gpus() {
  static std::vector<FakeGpu> all;
  return all;
}

FakeGpu* gpu_of(void* device) { return static_cast<FakeGpu*>(device); }

int describe(const std::string& bus, PciInfo* info) {
  std::memset(info, 0, sizeof *info);
  std::sscanf(bus.c_str(), "%x:%x:%x", &info->domain, &info->bus, &info->device);
  std::snprintf(info->bus_id, sizeof info->bus_id, "0000%s", bus.c_str());
  return 0;
}

int copy_text(const std::string& from, char* to, unsigned bytes) {
  if (from.size() >= bytes) return kInvalidArgument;
  std::strcpy(to, from.c_str());
  return 0;
}

}  // namespace

EXPORT int nvmlInit_v2() {
  if (const char* const error = std::getenv("FAKE_NVML_ERROR")) return std::atoi(error);
  gpus().clear();
  const char* const text = std::getenv("FAKE_NVML");
  std::istringstream lines(text != nullptr ? text : "");
  std::string links, refused;
  for (FakeGpu gpu; lines >> gpu.bus >> gpu.name >> gpu.uuid >> links >> refused;) {
    gpu.links = list_of(links);
    gpu.refused = list_of(refused);
    gpus().push_back(gpu);
  }
  return 0;
}
EXPORT int nvmlShutdown() { return 0; }
EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  const char* const wrong = std::getenv("FAKE_NVML_COUNT");
  *count = wrong != nullptr ? static_cast<unsigned>(std::atoll(wrong))
                            : static_cast<unsigned>(gpus().size());
  return 0;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= gpus().size()) return kInvalidArgument;
  if (gpus()[index].name == "lost") return kGpuIsLost;
  *device = &gpus()[index];
  return 0;
}
EXPORT int nvmlDeviceGetName(void* device, char* name, unsigned bytes) {
  if (gpu_of(device)->name == "endless") {
    std::memset(name, 'x', bytes);
    return 0;
  }
  return copy_text(gpu_of(device)->name, name, bytes);
}
EXPORT int nvmlDeviceGetUUID(void* device, char* uuid, unsigned bytes) {
  if (gpu_of(device)->uuid != "-") return copy_text(gpu_of(device)->uuid, uuid, bytes);
  std::memset(uuid, 'x', bytes);
  return kNotSupported;
}
EXPORT int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  return describe(gpu_of(device)->bus, info);
}
// A GPU without NVLinks does not know the question; a link above the last one is down.
EXPORT int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* active) {
  if (gpu_of(device)->links.empty()) return kNotSupported;
  *active = link < gpu_of(device)->links.size() ? 1 : 0;
  return 0;
}
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, PciInfo* info) {
  if (link >= gpu_of(device)->links.size()) return kInvalidArgument;
  const std::string& end = gpu_of(device)->links[link];
  return describe(end[0] == '*' ? end.substr(1) : end, info);
}
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, int* kind) {
  constexpr int kGpu = 0, kSwitch = 2;
  if (link >= gpu_of(device)->links.size()) return kInvalidArgument;
  *kind = gpu_of(device)->links[link][0] == '*' ? kGpu : kSwitch;
  return 0;
}
EXPORT int nvmlDeviceGetP2PStatus(void* device, void* peer, int index, int* status) {
  if (index != 0) return kNotSupported;
  *status = 0;
  for (const std::string& refused : gpu_of(device)->refused)
    if (&gpus()[static_cast<std::size_t>(std::stoi(refused))] == peer) *status = 1;
  return 0;
}
EXPORT int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  if (gpu_of(device)->name != "H100") return kNotSupported;
  *major = 9;
  *minor = 0;
  return 0;
}
