// Implements tutti-plan show, which prints the topology that a file describes.
#include <fmt/format.h>

#include <memory>
#include <sstream>
#include <string>

#include "common/text.h"
#include "tools/plan/commands.h"
#include "topology/topology_file.h"

namespace tutti::tools {
namespace {

struct Arguments {
  std::string path;
  bool json = false, dot = false, all = false;
};

int show(const Arguments& arguments) {
  const Fabric fabric = read_topology_file(arguments.path);
  const Graph graph = arguments.all ? expand(fabric) : fabric.node;
  if (arguments.json || arguments.dot) {
    fmt::print("{}", arguments.json ? to_json(graph) : to_dot(graph));
    return 0;
  }
  if (fabric.nodes > 1)
    fmt::print(
        "{} nodes, {} rails, {} nodes a leaf, {} leaves, {} spines, oversubscription {}, {} "
        "us a hop\n{}:\n",
        fabric.nodes, fabric.rails, fabric.nodes_per_leaf, fabric.leaves(),
        fabric.leaves() > 1 ? fabric.spines : 0, fabric.oversubscription, fabric.hop_us,
        arguments.all ? "all of them" : "each node");
  std::istringstream lines(to_text(graph));
  for (std::string line; std::getline(lines, line);) fmt::print("{}\n", escape_controls(line));
  return 0;
}

}  // namespace

void add_show(CLI::App& app, Run& run) {
  CLI::App* const command = app.add_subcommand(
      "show", "Shows the topology that a file describes; tutti-info --topology shows this machine");
  const auto arguments = std::make_shared<Arguments>();
  command
      ->add_option("file", arguments->path,
                   "NCCL's or RCCL's topology XML, or a fabric's JSON (docs/planning.md)")
      ->required();
  command->add_flag("--json", arguments->json, "Print the graph as one JSON object");
  command->add_flag("--dot", arguments->dot, "Print a picture for Graphviz: pipe to dot -Tsvg")
      ->excludes("--json");
  command->add_flag("--all", arguments->all, "All nodes of a fabric with its switches");
  command->callback([arguments, &run] { run = [arguments] { return show(*arguments); }; });
}

}  // namespace tutti::tools
