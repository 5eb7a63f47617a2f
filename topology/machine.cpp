#include "topology/machine.h"

#include <cassert>

namespace tutti {

bool Machine::is_sound() const {
  if (nodes.empty() || nodes.front().parent != -1) return false;
  for (std::size_t i = 1; i < nodes.size(); ++i)
    if (nodes[i].parent < 0 || static_cast<std::size_t>(nodes[i].parent) >= i) return false;
  return true;
}

std::string_view to_string(LinkKind link) {
  switch (link) {
    case LinkKind::same_core: return "same core";
    case LinkKind::shared_l2: return "shared L2";
    case LinkKind::shared_l3: return "shared L3";
    case LinkKind::same_package: return "same package";
    case LinkKind::other_package: return "other package";
    case LinkKind::other_machine: break;
  }
  return "other machine";
}

LinkKind link_between(const Machine& machine, const Cpus& a, const Cpus& b) {
  assert(machine.is_sound());
  const Cpus both = unite(a, b);
  int at = -1;  // the smallest node that contains both comes last
  for (std::size_t i = 0; i < machine.nodes.size(); ++i)
    if (contains(machine.nodes[i].cpus, both)) at = static_cast<int>(i);
  for (; at >= 0; at = machine.nodes[static_cast<std::size_t>(at)].parent) {
    const Node& node = machine.nodes[static_cast<std::size_t>(at)];
    assert(node.parent < at && "parents come before their children");
    if (node.kind == NodeKind::core) return LinkKind::same_core;
    if (node.kind == NodeKind::cache)
      return node.level <= 2 ? LinkKind::shared_l2 : LinkKind::shared_l3;
    if (node.kind == NodeKind::package) return LinkKind::same_package;
  }
  return LinkKind::other_package;
}

std::vector<Cpus> cores_within(const Machine& machine, const Cpus& cpus) {
  assert(machine.is_sound());
  std::vector<Cpus> cores;
  for (const Node& node : machine.nodes) {
    if (node.kind != NodeKind::core) continue;
    Cpus usable = intersect(node.cpus, cpus);
    if (!usable.empty()) cores.push_back(std::move(usable));
  }
  return cores;
}

}  // namespace tutti
