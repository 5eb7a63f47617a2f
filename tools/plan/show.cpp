// Implements tutti-plan show, which prints the topology of this machine, or the one that a file
// describes, and what is planned on it.
#include <fmt/format.h>

#include <memory>
#include <sstream>
#include <string>

#include "common/text.h"
#include "tools/plan/commands.h"
#include "tools/plan/topology.h"
#include "topology/nccl_xml.h"
#include "topology/print.h"
#include "topology/search/plan.h"

namespace tutti::tools {
namespace {

struct Arguments {
  std::string path, sys;
  bool json = false, dot = false, svg = false, xml = false, all = false, graph = false;
  int root = 0, nodes = 0;
};

/// Returns the text with the names of a file such that a terminal shows them.
std::string escaped(const std::string& text) {
  std::istringstream lines(text);
  std::string escaped;
  for (std::string line; std::getline(lines, line);) escaped += escape_controls(line) + '\n';
  return escaped;
}

std::string heading(const Fabric& fabric, bool all) {
  if (fabric.nodes == 1) return {};
  return fmt::format(
      "{} nodes, {} rails, {} nodes a leaf, {} leaves, {} spines, oversubscription {}, {} us a "
      "hop\n{}:\n",
      fabric.nodes, fabric.rails, fabric.nodes_per_leaf, fabric.leaves(),
      fabric.leaves() > 1 ? fabric.spines : 0, fabric.oversubscription, fabric.hop_us,
      all ? "all of them" : "each node");
}

CLI::Validator no_empty_name() {
  return CLI::Validator(
      [](const std::string& name) { return name.empty() ? "the name is empty" : ""; }, "");
}

void use_nodes(Fabric& fabric, int nodes) {
  if (fabric.nodes > 1)
    throw CLI::ValidationError("--nodes: the file says how many nodes there are");
  if (nodes > 1 && fabric.node.all(DeviceKind::port).empty())
    throw CLI::ValidationError("--nodes: a node of this topology has no port (<net>)");
  fabric.set_nodes(nodes);
}

int show(const Arguments& arguments) {
  if (!arguments.path.empty() && !arguments.sys.empty())
    throw CLI::ValidationError("--sys: a file is shown, not a machine");
  auto [fabric, name, title] = topology_of(arguments.path, arguments.sys);
  if (!title.empty()) title = on_one_line(title) + "\n";
  if (arguments.xml || arguments.json || arguments.dot || arguments.svg)
    fmt::print(stderr, "{}", title);  // what programs read has no place for it
  if (arguments.nodes > 0 && (arguments.graph || arguments.dot) && !arguments.all)
    throw CLI::ValidationError("--nodes: this shows the graph of one of them: add --all");
  if (arguments.nodes > 0) use_nodes(fabric, arguments.nodes);
  if (arguments.xml) {
    if (fabric.nodes > 1) throw CLI::ValidationError("--xml: the file describes several machines");
    fmt::print("{}", write_nccl_topology(fabric.node));
    return 0;
  }
  if (arguments.all || arguments.graph || arguments.dot) {
    const Graph graph = arguments.all ? expand(fabric) : fabric.node;
    if (arguments.json || arguments.dot)
      fmt::print("{}", arguments.json ? to_json(graph) : to_dot(graph));
    else
      fmt::print("{}{}{}", title, heading(fabric, arguments.all), escaped(to_text(graph)));
    return 0;
  }
  const auto gpus = static_cast<int>(fabric.node.all(DeviceKind::gpu).size());
  if (arguments.root != 0 && (arguments.root < 0 || arguments.root >= gpus * fabric.nodes))
    throw CLI::ValidationError(fmt::format("--root: there is no GPU {}", arguments.root));
  const TopologyPlan plan = plan_topology(fabric, arguments.root);
  if (arguments.json)
    fmt::print("{}", to_json(fabric, plan));
  else if (arguments.svg)
    fmt::print("{}", to_svg(fabric, plan));
  else
    fmt::print("{}{}{}{}", title, heading(fabric, false), escaped(to_text(fabric.node)),
               to_text(fabric, plan));
  return 0;
}

}  // namespace

void add_show(CLI::App& app, Run& run) {
  CLI::App* const command = app.add_subcommand(
      "show",
      "Shows the topology of this machine, or the one that a file describes, with the best paths, "
      "rings and trees");
  const auto arguments = std::make_shared<Arguments>();
  command
      ->add_option(
          "file", arguments->path,
          "NCCL's or RCCL's topology XML, or a fabric's JSON (docs/planning.md); without it "
          "TUTTI_TOPOLOGY_FILE, or else this machine")
      ->check(no_empty_name());
  command
      ->add_option("--sys", arguments->sys,
                   "A copy of /sys, which shows the devices of another machine; NVML is not asked")
      ->check(no_empty_name());
  CLI::Option* const json =
      command->add_flag("--json", arguments->json, "Print one JSON object in place of text");
  CLI::Option* const dot =
      command
          ->add_flag("--dot", arguments->dot,
                     "Print a picture of the graph for Graphviz: pipe to dot -Tsvg")
          ->excludes(json);
  CLI::Option* const svg =
      command->add_flag("--svg", arguments->svg, "Print a picture of the rings")
          ->excludes(json)
          ->excludes(dot);
  CLI::Option* const root =
      command->add_option("--root", arguments->root, "The GPU from which trees are shown")
          ->capture_default_str();
  CLI::Option* const nodes =
      command
          ->add_option("--nodes", arguments->nodes,
                       "Look for rings through so many machines like that of the XML")
          ->check(CLI::Range(1, kMostNodes));
  CLI::Option* const graph =
      command->add_flag("--graph", arguments->graph, "The graph alone, without a search")
          ->excludes(root)
          ->excludes(svg);
  CLI::Option* const all =
      command
          ->add_flag("--all", arguments->all, "All nodes of a fabric with its switches, as a graph")
          ->excludes(svg);
  CLI::Option* const xml =
      command->add_flag("--xml", arguments->xml,
                        "Print the topology of one machine as NCCL's XML, a file for "
                        "NCCL_TOPO_FILE and TUTTI_TOPOLOGY_FILE");
  for (CLI::Option* const other : {json, dot, svg, root, nodes, graph, all}) xml->excludes(other);
  for (CLI::Option* const pictures : {dot, svg, all}) root->excludes(pictures);
  command->callback([arguments, &run] { run = [arguments] { return show(*arguments); }; });
}

}  // namespace tutti::tools
