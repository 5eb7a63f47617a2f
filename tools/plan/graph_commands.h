// The part of tutti-plan explain, simulate and sweep that predicts times on a fabric.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <tutti/types.hpp>

#include "collectives/planning/graph_simulation.h"

namespace tutti::tools {

inline constexpr int kMostGraphRanks = 1 << 24;

/// The options that describe the fabric, its ranks, and what is written to files.
struct GraphArguments {
  std::string topology, svg, trace;
  int nodes = 0;  ///< 0: as the file says.
  int trace_ranks = 8;
  double step_us = 0.5, node_latency_us = 0.7, network_latency_us = 3;
  GraphCosts costs = {};

  bool given() const { return !topology.empty(); }
};

void add_graph_options(CLI::App& command, GraphArguments& arguments);

/// The calls that are predicted.
struct GraphCase {
  Collective what = Collective::all_reduce;
  std::vector<std::string> algorithms = {};  ///< All that can serve the call, if empty.
  std::vector<int> ranks = {};               ///< All GPUs of the fabric, if empty.
  std::vector<std::uint64_t> sizes = {};
  std::size_t message_bytes = 512u << 10;
  bool json = false;
};

/// Each returns the exit status.
int explain_on_graph(const GraphArguments& arguments, GraphCase one);
int simulate_on_graph(const GraphArguments& arguments, GraphCase one);
int sweep_on_graph(const GraphArguments& arguments, const GraphCase& one);

}  // namespace tutti::tools
