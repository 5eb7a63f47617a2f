// Graphs for tests of paths, rings and trees.
#pragma once

#include <random>
#include <string>

#include "topology/graph.h"

namespace tutti {

inline int add_device(Graph& graph, DeviceKind kind, int parent = -1) {
  const int number = static_cast<int>(graph.devices.size());
  graph.devices.push_back(
      {kind, std::string(to_string(kind)) + " " + std::to_string(number), parent, number, 0, {}});
  return number;
}

/// Returns GPUs that are joined by links of random bandwidth, each pair with the given probability,
/// and by a processor so that all reach each other.
inline Graph random_graph(std::uint32_t seed, int gpus, double probability) {
  std::mt19937 random(seed);
  const auto draw = [&](unsigned below) { return static_cast<double>(random() % below); };
  Graph graph;
  const int cpu = add_device(graph, DeviceKind::cpu);
  for (int gpu = 0; gpu < gpus; ++gpu) {
    add_device(graph, DeviceKind::gpu, cpu);
    connect(graph, cpu, gpu + 1, WireKind::pci, 1 + draw(8));
  }
  for (int a = 1; a <= gpus; ++a)
    for (int b = 1; b < a; ++b)
      if (draw(1000) < probability * 1000) connect(graph, a, b, WireKind::nvlink, 1 + draw(20));
  return graph;
}

/// Returns GPUs each two of which are joined by links of the same bandwidth.
inline Graph full_mesh(int gpus, double gb_per_s) {
  Graph graph;
  for (int gpu = 0; gpu < gpus; ++gpu) add_device(graph, DeviceKind::gpu);
  for (int a = 0; a < gpus; ++a)
    for (int b = 0; b < a; ++b) connect(graph, a, b, WireKind::nvlink, gb_per_s);
  return graph;
}

}  // namespace tutti
