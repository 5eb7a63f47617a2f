#include "topology/topology_file.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/files.h"
#include "topology/nccl_xml.h"

namespace tutti {
namespace {

constexpr std::uintmax_t kMostTopologyBytes = 16u << 20;

Graph read_node(const std::string& path) {
  return read_nccl_topology(path, read_file("the topology", path, kMostTopologyBytes));
}

}  // namespace

Fabric fabric_of(Graph node) {
  Fabric fabric;
  fabric.rails = std::max(1, static_cast<int>(node.all(DeviceKind::port).size()));
  fabric.node = std::move(node);
  return fabric;
}

Fabric read_topology_file(const std::string& path) {
  if (!path.ends_with(".json")) return fabric_of(read_node(path));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return read_fabric(path, read_file("the fabric", path, kMostTopologyBytes),
                     [&](const std::string& node) { return read_node((folder / node).string()); });
}

}  // namespace tutti
