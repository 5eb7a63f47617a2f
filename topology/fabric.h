// Describes a cluster in a few numbers: equal nodes whose ports are joined by leaf and spine
// switches.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "topology/graph.h"

namespace tutti {

/// A file describes it as one JSON object, of which `nodes` and `topology` must be there:
///
///     {"nodes": 512, "topology": "node.xml", "rails": 8, "nodes_per_leaf": 32, "spines": 8,
///      "oversubscription": 2.0, "hop_us": 0.5}
///
/// Port p of a node is on rail p % rails. The same rail of `nodes_per_leaf` consecutive nodes ends
/// in one leaf switch, and each leaf has a link to each spine. Where one leaf holds all nodes and
/// rails, there are no spines.
struct Fabric {
  Graph node;               ///< One machine with at least `rails` ports.
  int nodes = 1;            ///< 1 to kMostNodes.
  int rails = 1;            ///< By default as many as a node has ports, so that rails are apart.
  int nodes_per_leaf = 1;   ///< By default all of them.
  bool is_one_leaf = true;  ///< Whether `nodes_per_leaf` is the number of nodes by default.
  int spines = 1;           ///< Of all rails together.
  double oversubscription = 1;  ///< What enters a leaf from its nodes to what leaves to spines.
  double hop_us = 0;            ///< The latency of a link of a switch.

  std::int64_t leaves() const {
    return std::int64_t{rails} * ((nodes + nodes_per_leaf - 1) / nodes_per_leaf);
  }
  /// Changes the number of nodes, 1 to kMostNodes.
  void set_nodes(int count) {
    nodes = count;
    if (is_one_leaf) nodes_per_leaf = count;
  }
};

inline constexpr int kMostNodes = 1 << 20;
/// The most devices of a fabric's graph: a cluster of 2 000 nodes of 64 devices.
inline constexpr int kMostFabricDevices = 1 << 17;
inline constexpr int kMostFabricLinks = 1 << 20;  ///< Between leaves and spines.

/// Reads a description; `name` is the file's name in errors. `read_node` returns the machine that
/// `topology` names. Throws `usage` with the place for a malformed file.
Fabric read_fabric(const std::string& name, const std::string& text,
                   const std::function<Graph(const std::string& topology)>& read_node);

/// Returns the graph of all nodes and switches; devices of node n are named "n/NAME". Throws
/// `unavailable` for more than kMostFabricDevices or kMostFabricLinks.
Graph expand(const Fabric& fabric);

}  // namespace tutti
