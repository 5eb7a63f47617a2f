// One machine as plain data: a tree of what its processors share.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "common/cpus.h"
#include "common/machine_costs.h"
#include "topology/cgroup.h"

namespace tutti {

/// What is not a processor (GPU, NIC, files) becomes a kind of its own, with the cpus near it.
enum class NodeKind { machine, package, numa, cache, core };

struct Node {
  NodeKind kind = NodeKind::machine;
  int parent = -1;        ///< Index in Machine::nodes; -1: the machine.
  int number = 0;         ///< Of a package, NUMA node or core, as the system counts them.
  int level = 0;          ///< Of a cache: 1 to 5.
  std::size_t bytes = 0;  ///< Of a cache; a NUMA node's memory. 0: unknown.
  Cpus cpus;              ///< That are in it or share it.
};

struct Machine {
  std::vector<Node> nodes;  ///< Parents before children, neighbours side by side.
  Cpus allowed;             ///< That this process may use: its affinity mask.
  CgroupLimits limits;
  std::string_view source;  ///< Who told: "hwloc", or "sysconf" where hwloc cannot.
  bool described = false;   ///< By a text; it is not the machine that we run on.

  const Cpus& cpus() const { return nodes.front().cpus; }
};

/// The link between ranks that run anywhere on `a` and `b`: that of the smallest node which holds
/// them all. Of cpus that the machine does not know: the farthest.
LinkKind link_between(const Machine& machine, const Cpus& a, const Cpus& b);

/// That `cpus` may use, as sets of their cpus: neighbours side by side.
std::vector<Cpus> cores_within(const Machine& machine, const Cpus& cpus);

}  // namespace tutti
