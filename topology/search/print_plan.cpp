// Prints what was planned on a topology as text and as JSON.
#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "topology/search/plan.h"

namespace tutti {
namespace {

std::string end_name(const Paths& paths, int end) {
  return end < paths.gpus() ? fmt::format("GPU {}", end)
                            : fmt::format("port {}", end - paths.gpus());
}

std::string paths_text(const Paths& paths) {
  std::string text = fmt::format("\n{:<8}", "paths");
  const int ends = paths.gpus() + paths.ports();
  for (int end = 0; end < ends; ++end) text += fmt::format("{:>12}", end_name(paths, end));
  bool missing = false;
  for (int from = 0; from < paths.gpus(); ++from) {
    text += fmt::format("\n{:<8}", end_name(paths, from));
    for (int to = 0; to < ends; ++to) {
      const Path& path = paths.between(from, to);
      missing = missing || path.kind == PathKind::none;
      text += fmt::format("{:>12}", path.links.empty()
                                        ? std::string(to_string(path.kind))
                                        : fmt::format("{} {:.4g}/{}", to_string(path.kind),
                                                      path.gb_per_s, path.hops()));
    }
  }
  text +=
      "\nkind, GB/s, links; NVL NVLink or xGMI, NVB by another GPU, C2C a processor's own GPU, PIX "
      "one PCI switch, PXB several, PHB the\nhost bridge of a NUMA node, SYS between NUMA nodes";
  return text + (missing ? ", DIS no path\n" : "\n");
}

std::string share(double found, double bound) {
  return fmt::format("{:.4g} of at most {:.4g} GB/s: {:.3f}", found, bound,
                     bound > 0 ? found / bound : 1.0);
}

std::string rings_text(const Fabric& fabric, const RingPlan& plan) {
  std::string text = fmt::format("\nrings    {}, {}", plan.rings.size(),
                                 share(plan.gb_per_s, plan.bound_gb_per_s));
  if (plan.ring_bound_gb_per_s < plan.bound_gb_per_s * (1 - 1e-9))
    text += fmt::format(" (rings of best paths carry at most {:.4g})", plan.ring_bound_gb_per_s);
  if (fabric.nodes > 1)
    text += fmt::format("; each passes by all {} nodes on one rail", fabric.nodes);
  text += '\n';
  for (const Ring& ring : plan.rings) {
    text += fmt::format("{:>10.3f} GB/s {:<4}", ring.gb_per_s, to_string(ring.worst));
    if (ring.port >= 0) text += fmt::format(" port {}:", ring.port);
    for (const int gpu : ring.gpus) text += fmt::format(" {}", gpu);
    text += '\n';
  }
  return text;
}

std::string forest_text(const std::string& from, const Forest& forest) {
  int depth = 0;
  for (const SpanningTree& tree : forest.trees) depth = std::max(depth, tree.depth());
  return fmt::format("trees    {} each from {}, depth {}, {} from each root\n",
                     forest.trees_of_root, from, depth,
                     share(forest.gb_per_s, forest.bound_gb_per_s));
}

std::string tree_text(const SpanningTree& tree) {
  std::string text = "          ";
  int last = -1;
  for (const auto& edge : tree.edges) {
    text +=
        edge.from == last ? fmt::format(",{}", edge.to) : fmt::format(" {}-{}", edge.from, edge.to);
    last = edge.from;
  }
  return text + '\n';
}

nlohmann::ordered_json json_of(const Paths& paths, const Fabric& fabric) {
  auto list = nlohmann::ordered_json::array();
  const int ends = paths.gpus() + paths.ports();
  for (int from = 0; from < ends; ++from)
    for (int to = 0; to < ends; ++to) {
      const Path& path = paths.between(from, to);
      auto devices = nlohmann::ordered_json::array();
      for (const int link : path.links)
        devices.push_back(paths.links()[static_cast<std::size_t>(link)].to);
      list.push_back({{"from", paths.ends()[static_cast<std::size_t>(from)]},
                      {"to", paths.ends()[static_cast<std::size_t>(to)]},
                      {"kind", to_string(path.kind)},
                      {"gb_per_s", path.gb_per_s},
                      {"latency_us", path.latency_us},
                      {"by", devices}});
    }
  return {{"nodes", fabric.nodes}, {"between", list}};
}

nlohmann::ordered_json json_of(const RingPlan& plan) {
  auto list = nlohmann::ordered_json::array();
  for (const Ring& ring : plan.rings)
    list.push_back({{"gpus", ring.gpus},
                    {"port", ring.port},
                    {"gb_per_s", ring.gb_per_s},
                    {"worst", to_string(ring.worst)}});
  return {{"gb_per_s", plan.gb_per_s},
          {"bound_gb_per_s", plan.bound_gb_per_s},
          {"ring_bound_gb_per_s", plan.ring_bound_gb_per_s},
          {"list", list}};
}

nlohmann::ordered_json json_of(const Forest& forest) {
  auto list = nlohmann::ordered_json::array();
  for (const SpanningTree& tree : forest.trees) {
    auto edges = nlohmann::ordered_json::array();
    for (const auto& edge : tree.edges) edges.push_back({edge.from, edge.to});
    list.push_back({{"root", tree.root}, {"edges", edges}});
  }
  return {{"trees_of_root", forest.trees_of_root},
          {"gb_per_s", forest.gb_per_s},
          {"bound_gb_per_s", forest.bound_gb_per_s},
          {"list", list}};
}

nlohmann::ordered_json why(const std::string& reason) { return {{"why_not", reason}}; }

}  // namespace

std::string to_text(const Fabric& fabric, const TopologyPlan& plan) {
  std::string text = plan.paths ? paths_text(*plan.paths)
                                : fmt::format("\npaths    none: {}\n", plan.why_no_paths);
  text += plan.rings ? rings_text(fabric, *plan.rings)
                     : fmt::format("\nrings    none: {}\n", plan.why_no_rings);
  text += '\n';
  if (plan.trees) text += forest_text("every GPU at once", *plan.trees);
  if (plan.one_root) {
    text += forest_text(fmt::format("GPU {} alone", plan.root), *plan.one_root);
    for (const SpanningTree& tree : plan.one_root->trees) text += tree_text(tree);
  }
  if (!plan.why_no_trees.empty()) text += fmt::format("trees    none: {}\n", plan.why_no_trees);
  return text;
}

std::string to_json(const Fabric& fabric, const TopologyPlan& plan) {
  auto all = nlohmann::ordered_json::parse(to_json(fabric.node));
  auto& member = all["plan"];
  member["paths"] = plan.paths ? json_of(*plan.paths, fabric) : why(plan.why_no_paths);
  member["rings"] = plan.rings ? json_of(*plan.rings) : why(plan.why_no_rings);
  member["trees"] = plan.trees ? json_of(*plan.trees) : why(plan.why_no_trees);
  member["trees_of_one_root"] = plan.one_root ? json_of(*plan.one_root) : why(plan.why_no_trees);
  return all.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace tutti
