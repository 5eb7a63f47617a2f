// Finds the best path between every two GPUs and network ports of a graph, by NCCL's names.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "topology/graph.h"

namespace tutti {

/// Lists the kinds of paths by NCCL's names, from the best to the worst (NCCL `src/graph/topo.h`,
/// `paths.cc`). The kind of a path is that of its worst link.
enum class PathKind : std::uint8_t {
  loc,   ///< Both ends are one device.
  nvl,   ///< NVLink or xGMI, directly or by an NVSwitch.
  nvb,   ///< NVLink or xGMI to another GPU, which passes the data on to the last one.
  c2c,   ///< The link of a processor to its own GPU.
  pix,   ///< At most one PCI switch.
  pxb,   ///< Several PCI switches.
  phb,   ///< The host bridge of a NUMA node.
  sys,   ///< The connection between NUMA nodes.
  net,   ///< A network.
  none,  ///< There is no path. NCCL calls it DIS.
};
inline constexpr int kPathKinds = 10;
std::string_view to_string(PathKind kind);  ///< For example "NVL".

/// Describes all wires of one kind from one device to another.
struct Link {
  int from = 0;
  int to = 0;
  WireKind kind = WireKind::pci;
  double gb_per_s = 0;    ///< 10^9 bytes a second, of all of them together.
  double latency_us = 0;  ///< The largest of them.

  bool operator==(const Link&) const = default;
};

/// Returns the links of a graph in the order of `from`, then `to`, then `kind`.
std::vector<Link> links_of(const Graph& graph);

struct Path {
  PathKind kind = PathKind::none;
  double gb_per_s = 0;     ///< The bandwidth of its narrowest link; 0 if it has no links.
  double latency_us = 0;   ///< The sum over its links.
  std::vector<int> links;  ///< Indices into Paths::links(), from the first end to the second.

  int hops() const { return static_cast<int>(links.size()); }
};

/// Holds the best path between every two ends. It is immutable, and the same on every rank that has
/// the same graph.
class Paths {
 public:
  /// The most GPUs and ports of a graph, and the most steps (ends times links) of the search.
  static constexpr std::size_t kMostEnds = 512;
  static constexpr std::size_t kMostSteps = std::size_t{1} << 25;

  /// Finds the paths. Of all paths the best is one of the best kind, among these one with the
  /// fewest links, and among these one with the highest bandwidth. A GPU passes data on in a path
  /// of kind `nvb` alone, and then only one. Throws `unavailable` beyond the limits.
  explicit Paths(const Graph& graph);

  /// Returns the devices between which there are paths: all GPUs, then all ports.
  const std::vector<int>& ends() const { return ends_; }
  int gpus() const { return gpus_; }
  int ports() const { return static_cast<int>(ends_.size()) - gpus_; }
  const std::vector<Link>& links() const { return links_; }

  /// Returns the path between two ends, which are indices into ends().
  const Path& between(int from, int to) const;

 private:
  void find_from(int end, const Graph& graph, const std::vector<int>& first_link);

  std::vector<int> ends_;
  int gpus_ = 0;
  std::vector<Link> links_;
  std::vector<Path> paths_;  // of each end to each end
};

}  // namespace tutti
