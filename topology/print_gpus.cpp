#include "topology/print_gpus.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "common/text.h"
#include "topology/print.h"

namespace tutti {
namespace {

std::string gpu_paths(const MachineGpus& machine) {
  const std::size_t count = machine.gpus.size();
  const GpuPaths paths(machine);
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
      const bool open = paths.open(a, b);
      const std::string_view mark = open ? "" : "!";
      refused = refused || !open;
      fmt::format_to(std::back_inserter(text), "{:>{}}{}", to_string(paths.between(a, b)),
                     6 - mark.size(), mark);
    }
  }
  text +=
      "\nNVL NVLink or xGMI, PIX one PCIe switch, PXB several PCIe switches, PHB the host bridge "
      "of a NUMA "
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

/// Returns such a text in which Graphviz finds no quotes or escapes.
std::string plain(std::string_view name) {
  std::string text = on_one_line(name);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '"' || c == '\\'; }, ' ');
  return text;
}

}  // namespace

std::string gpus_text(const MachineGpus& machine) {
  if (machine.gpus.empty()) return fmt::format("gpus     none: {}\n", on_one_line(machine.source));
  std::string text = fmt::format("gpus     told by {}\n", on_one_line(machine.source));
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    const GpuNode& gpu = machine.gpus[i];
    text += fmt::format("gpu {:<4} {}, {}, {}", i, on_one_line(gpu.bus),
                        gpu.numa >= 0 ? fmt::format("numa {}", gpu.numa) : "no numa node",
                        on_one_line(gpu.name));
    if (!gpu.uuid.empty()) text += ", " + on_one_line(gpu.uuid);
    if (!gpu.nvlinks.empty())
      text +=
          fmt::format(", {}: {}", gpu.gcn.empty() ? "NVLinks" : "xGMI links", gpu.nvlinks.size());
    text += "\n";
  }
  return machine.gpus.size() > 1 ? text + gpu_paths(machine) : text;
}

std::string to_dot(const Machine& machine, const MachineGpus& gpus) {
  std::string text = to_dot(machine);
  const GpuPaths paths(gpus);
  assert(text.ends_with("}\n"));
  text.resize(text.size() - 2);
  for (std::size_t i = 0; i < gpus.gpus.size(); ++i) {
    const GpuNode& gpu = gpus.gpus[i];
    const std::string node = fmt::format("gpu{} [label=\"gpu {}\\n{}\\n{}\", fillcolor=lightblue];",
                                         i, i, plain(gpu.bus), plain(gpu.name));
    const int box = box_of_numa(machine, gpu.numa);
    // A box of the same name is the same box.
    text += box >= 0 ? fmt::format("  subgraph cluster_{} {{ {} }}\n", box, node)
                     : fmt::format("  {}\n", node);
    for (std::size_t before = 0; before < i; ++before)
      if (paths.between(before, i) == GpuPath::nvl)
        text += fmt::format("  gpu{} -> gpu{} [dir=none, label=NVL];\n", before, i);
  }
  return text + "}\n";
}

}  // namespace tutti
