// Describes one machine as plain data: a tree of the parts that its processors share.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "common/cpus.h"
#include "topology/cgroup.h"

namespace tutti {

/// The kinds of nodes. GPUs are beside the tree: topology/gpus.h.
enum class NodeKind { machine, package, numa, cache, core };
static_assert(NodeKind::package < NodeKind::numa && NodeKind::numa < NodeKind::cache,
              "discovery puts NUMA nodes between packages and caches");

struct Node {
  NodeKind kind = NodeKind::machine;
  int parent = -1;  ///< Index in Machine::nodes; -1 for the machine itself.
  /// The system's number of a package, NUMA node or core.
  int number = 0;
  int level = 0;  ///< The level of a cache, 1 to 5.
  /// The size of a cache, or a NUMA node's memory; 0 if unknown.
  std::size_t bytes = 0;
  Cpus cpus;  ///< The cpus that belong to the node or share it.
};

struct Machine {
  std::vector<Node> nodes;  ///< Parents come before children; neighbours are side by side.
  Cpus allowed;             ///< The cpus that this process may use: its affinity mask.
  CgroupLimits limits;
  /// Where the description comes from: "hwloc", or "sysconf" if hwloc failed.
  std::string_view source;
  /// Whether the machine was described by a text, so that it is not the machine of this process.
  bool described = false;

  const Cpus& cpus() const { return nodes.front().cpus; }
  /// Returns whether the nodes are a tree, with parents before their children.
  bool is_sound() const;
};

/// The kind of link between two ranks, which is the nearest part of the machine that they share.
enum class LinkKind { same_core, shared_l2, shared_l3, same_package, other_package, other_machine };
inline constexpr std::size_t kLinkKinds = 6;
static_assert(static_cast<std::size_t>(LinkKind::other_machine) + 1 == kLinkKinds);
std::string_view to_string(LinkKind link);

/// Returns the link between a rank that runs anywhere on `a` and one that runs anywhere on `b`:
/// that of the smallest node which contains all of these cpus. If the machine does not know some of
/// them, this is the farthest link.
LinkKind link_between(const Machine& machine, const Cpus& a, const Cpus& b);

/// Returns the cores that contain any of `cpus`, as sets of those cpus, with neighbours side by
/// side.
std::vector<Cpus> cores_within(const Machine& machine, const Cpus& cpus);

}  // namespace tutti
