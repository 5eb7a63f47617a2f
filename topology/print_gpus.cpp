#include "topology/print_gpus.h"

#include <algorithm>
#include <cassert>

#include <fmt/format.h>

#include "topology/print.h"

namespace tutti {
namespace {

/// Returns whether the driver lets each of the two GPUs access the memory of the other.
bool reach_each_other(const MachineGpus& machine, std::size_t a, std::size_t b) {
  const auto refuses = [&](std::size_t own, std::size_t peer) {
    const std::vector<int>& refused = machine.gpus[own].unreachable;
    return std::find(refused.begin(), refused.end(), static_cast<int>(peer)) != refused.end();
  };
  return !refuses(a, b) && !refuses(b, a);
}

std::string gpu_paths(const MachineGpus& machine) {
  const std::size_t count = machine.gpus.size();
  std::string text = fmt::format("\n{:8}", "paths");
  bool refused = false;
  for (std::size_t b = 0; b < count; ++b) text += fmt::format("{:>6}", b);
  for (std::size_t a = 0; a < count; ++a) {
    text += fmt::format("\ngpu {:<4}", a);
    for (std::size_t b = 0; b < count; ++b) {
      if (a == b) {
        text += fmt::format("{:>6}", '.');
        continue;
      }
      const bool open = reach_each_other(machine, a, b);
      refused = refused || !open;
      text += fmt::format(
          "{:>6}", fmt::format("{}{}", to_string(path_between(machine, a, b)), open ? "" : "!"));
    }
  }
  text +=
      "\nNVL NVLink, PIX one PCIe switch, PXB several PCIe switches, PHB the host bridge of a NUMA "
      "node, SYS between NUMA nodes\n";
  if (refused) text += "! the driver gives one of them no access to the memory of the other\n";
  return text;
}

/// Returns the index of the box of a NUMA node, or -1 if the picture has no such box.
int box_of_numa(const Machine& machine, int numa) {
  int box = -1;
  for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
    const Node& node = machine.nodes[i];
    if (node.kind == NodeKind::numa && node.number == numa) box = static_cast<int>(i);
    if (node.parent >= 0 && node.parent == box) return box;  // only a node with children is a box
  }
  return -1;
}

/// Returns a text in which Graphviz finds no quotes or escapes.
std::string plain(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '"' || c == '\\'; }, ' ');
  return text;
}

}  // namespace

std::string gpus_text(const MachineGpus& machine) {
  if (machine.gpus.empty()) return fmt::format("gpus     none: {}\n", machine.source);
  std::string text = fmt::format("gpus     told by {}\n", machine.source);
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    const GpuNode& gpu = machine.gpus[i];
    text +=
        fmt::format("gpu {:<4} {}, {}, {}", i, gpu.bus,
                    gpu.numa >= 0 ? fmt::format("numa {}", gpu.numa) : "no numa node", gpu.name);
    if (!gpu.uuid.empty()) text += ", " + gpu.uuid;
    if (!gpu.nvlinks.empty()) text += fmt::format(", NVLinks: {}", gpu.nvlinks.size());
    text += "\n";
  }
  return machine.gpus.size() > 1 ? text + gpu_paths(machine) : text;
}

std::string to_dot(const Machine& machine, const MachineGpus& gpus) {
  std::string text = to_dot(machine);
  assert(text.ends_with("}\n"));
  text.resize(text.size() - 2);
  for (std::size_t i = 0; i < gpus.gpus.size(); ++i) {
    const GpuNode& gpu = gpus.gpus[i];
    const std::string node = fmt::format("gpu{} [label=\"gpu {}\\n{}\\n{}\", fillcolor=lightblue];",
                                         i, i, gpu.bus, plain(gpu.name));
    const int box = box_of_numa(machine, gpu.numa);
    // A box of the same name is the same box.
    text += box >= 0 ? fmt::format("  subgraph cluster_{} {{ {} }}\n", box, node)
                     : fmt::format("  {}\n", node);
    for (std::size_t before = 0; before < i; ++before)
      if (path_between(gpus, before, i) == GpuPath::nvl)
        text += fmt::format("  gpu{} -> gpu{} [dir=none, label=NVL];\n", before, i);
  }
  return text + "}\n";
}

}  // namespace tutti
