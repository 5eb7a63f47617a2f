// Describes the GPUs of a machine as plain data, and how they reach each other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// Says how two GPUs reach each other, from the fastest to the slowest, by the names of NCCL.
enum class GpuPath {
  nvl,  ///< NVLink, directly or by an NVSwitch; xGMI.
  pix,  ///< One PCIe switch.
  pxb,  ///< Several PCIe switches.
  phb,  ///< The host bridge of a NUMA node.
  sys,  ///< The connection between NUMA nodes.
};
std::string_view to_string(GpuPath path);  ///< For example "NVL".

/// Describes one GPU.
struct GpuNode {
  std::string bus;  ///< Its address on the PCI bus, for example "0000:17:00.0".
  std::string name;
  std::string uuid;  ///< Empty if nothing tells it.
  int numa = -1;     ///< The NUMA node near it, or -1 if the system does not say.
  /// Lists the way from the host bridge to the GPU, for example {"pci0000:16", "0000:16:01.0",
  /// "0000:17:00.0"}; empty if the system does not show it.
  std::vector<std::string> pci;
  /// Names the other end of each NVLink or xGMI link that is up: the address of a GPU, or of a
  /// switch.
  std::vector<std::string> nvlinks = {};
  /// Lists the numbers of the GPUs to whose memory the driver gives it no access.
  std::vector<int> unreachable = {};
  std::string gcn = {};  ///< The architecture of a GPU of AMD, for example "gfx942", or empty.
  int sm = 0;  ///< Its compute capability times ten, for example 90; 0 if nothing tells it.
};

struct MachineGpus {
  std::vector<GpuNode> gpus;  ///< Those of NVML in its order, then the others by address.
  std::string source;         ///< Who told of them, or why nobody did; for people.
};

/// Knows how the GPUs of a machine reach each other. What is needed of each GPU for that is found
/// once.
class GpuPaths {
 public:
  /// `machine` outlives it.
  explicit GpuPaths(const MachineGpus& machine);

  /// Returns the path between two different GPUs.
  GpuPath between(std::size_t a, std::size_t b) const;
  /// Returns whether the driver lets each of the two GPUs access the memory of the other.
  bool open(std::size_t a, std::size_t b) const;

 private:
  struct Ends {
    std::size_t number = 0;          ///< Of the first GPU at the same address.
    std::vector<std::size_t> peers;  ///< The numbers at the other ends of NVLinks; sorted.
    bool has_switch = false;         ///< An NVLink ends at something that is no GPU.
    std::vector<int> refused;        ///< Sorted.
  };
  const MachineGpus& machine_;
  std::vector<Ends> ends_;
};

}  // namespace tutti
