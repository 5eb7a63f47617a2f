#include "topology/discover.h"

#include <hwloc.h>
#include <unistd.h>

#include <cassert>
#include <memory>
#include <type_traits>

#include <fmt/format.h>

#include "common/text.h"
#include "topology/first_line.h"

namespace tutti {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, Destroy>;

Cpus cpus_of(hwloc_const_bitmap_t set) {
  Cpus cpus;
  for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu))
    cpus.push_back(cpu);
  return cpus;
}

int number_of(hwloc_obj_t object) {
  return static_cast<int>(object->os_index == HWLOC_UNKNOWN_INDEX ? object->logical_index
                                                                  : object->os_index);
}

/// Converts hwloc's tree to the nodes of a Machine.
class Walk {
 public:
  std::vector<Node> nodes;

  void visit(hwloc_obj_t object, int parent) {
    const auto kind = kind_of(object, parent);
    if (kind && *kind < NodeKind::numa) parent = add(object, *kind, parent);
    // hwloc keeps memory beside its tree. In a Machine, a NUMA node is the parent of the caches and
    // cores that are near it.
    if (const int memory = visit_memory(object, parent); memory >= 0) parent = memory;
    if (kind && *kind > NodeKind::numa) parent = add(object, *kind, parent);
    for (hwloc_obj_t child = object->first_child; child != nullptr; child = child->next_sibling)
      visit(child, parent);
  }

 private:
  int add(hwloc_obj_t object, NodeKind kind, int parent) {
    assert(-1 <= parent && parent < static_cast<int>(nodes.size()));
    Node node{kind, parent, number_of(object), 0, 0, cpus_of(object->cpuset)};
    if (kind == NodeKind::cache) {
      node.level = static_cast<int>(object->attr->cache.depth);
      node.bytes = static_cast<std::size_t>(object->attr->cache.size);
    }
    if (kind == NodeKind::numa)
      node.bytes = static_cast<std::size_t>(object->attr->numanode.local_memory);
    assert(parent < static_cast<int>(nodes.size()));
    nodes.push_back(std::move(node));
    return static_cast<int>(nodes.size()) - 1;
  }

  /// Adds the NUMA nodes of `object`. Returns the index of the first that has cpus, which becomes
  /// the parent of the caches and cores near it, or -1 if there is none. Further nodes beside it
  /// are other kinds of memory.
  int visit_memory(hwloc_obj_t object, int parent) {
    int holder = -1;
    for (hwloc_obj_t child = object->memory_first_child; child != nullptr;
         child = child->next_sibling) {
      const int found = child->type == HWLOC_OBJ_NUMANODE
                            ? add(child, NodeKind::numa, parent)
                            : visit_memory(child, parent);  // a memory-side cache
      if (holder < 0 && found >= 0 && !at(found).cpus.empty()) holder = found;
    }
    return holder;
  }

  /// Returns no kind for objects that say nothing about what cores share.
  std::optional<NodeKind> kind_of(hwloc_obj_t object, int parent) const {
    if (object->type == HWLOC_OBJ_MACHINE) return NodeKind::machine;
    if (object->type == HWLOC_OBJ_PACKAGE) return NodeKind::package;
    if (hwloc_obj_type_is_dcache(object->type) != 0) return NodeKind::cache;
    if (object->type == HWLOC_OBJ_CORE) return NodeKind::core;
    // Where the system does not report cores, each cpu counts as one.
    if (object->type == HWLOC_OBJ_PU && !in_core(parent)) return NodeKind::core;
    return std::nullopt;
  }

  bool in_core(int index) const {
    while (index >= 0 && at(index).kind != NodeKind::core) index = at(index).parent;
    return index >= 0;
  }

  const Node& at(int index) const { return nodes[static_cast<std::size_t>(index)]; }
};

/// Asks hwloc for this machine or, if `synthetic` is not null, for the machine that it describes.
std::optional<Machine> ask_hwloc(const char* synthetic) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return std::nullopt;
  const Topology topology(raw);
  if (synthetic != nullptr && hwloc_topology_set_synthetic(raw, synthetic) != 0)
    return std::nullopt;
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(raw) != 0) return std::nullopt;
  Walk walk;
  walk.visit(hwloc_get_root_obj(raw), -1);
  Machine machine{std::move(walk.nodes), {}, {}, "hwloc", hwloc_topology_is_thissystem(raw) == 0};
  if (machine.nodes.empty() || machine.cpus().empty()) return std::nullopt;
  assert(machine.is_sound());
  machine.allowed = machine.cpus();
  return machine;
}

}  // namespace

std::optional<Machine> describe(const std::string& synthetic) {
  return ask_hwloc(synthetic.c_str());
}

Machine plain_machine(const Cpus& cpus) {
  assert(!cpus.empty());
  Machine machine{{}, cpus, {}, "sysconf"};
  machine.nodes.push_back({NodeKind::machine, -1, 0, 0, 0, cpus});
  machine.nodes.push_back({NodeKind::package, 0, 0, 0, 0, cpus});
  for (const int cpu : cpus) machine.nodes.push_back({NodeKind::core, 1, cpu, 0, 0, {cpu}});
  assert(machine.is_sound() && cores_within(machine, cpus).size() == cpus.size());
  return machine;
}

std::optional<int> package_of(const Cpus& cpus, const std::string& sys) {
  if (cpus.empty() || static_cast<long>(cpus.size()) >= sysconf(_SC_NPROCESSORS_ONLN)) return {};
  const std::string folder =
      fmt::format("{}/devices/system/cpu/cpu{}/topology/", sys, cpus.front());
  const auto siblings = parse_cpus(first_line(folder + "core_siblings_list"));
  if (!siblings || !contains(*siblings, cpus)) return {};
  const auto package = parse_number<int>(first_line(folder + "physical_package_id"));
  return package && *package >= 0 ? package : std::nullopt;
}

Machine discover() {
  const Cpus mine = affinity();
  auto found = ask_hwloc(nullptr);
  if (found && found->described) return *std::move(found);
  if (!found || !contains(found->cpus(), mine)) {
    Cpus online;
    for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); ++cpu) online.push_back(cpu);
    found = plain_machine(unite(online, mine));
  }
  assert(found->is_sound() && contains(found->cpus(), mine));
  found->allowed = mine;
  found->limits = read_cgroup_limits();
  return *std::move(found);
}

}  // namespace tutti
