// Orders the GPUs of a machine such that those with fast links between them are neighbours.
#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/search/flow.h"

namespace tutti {

/// The place of a GPU around the best ring of its machine.
struct PlacedGpu {
  std::string bus;  ///< Its address on the PCI bus, which is the name of the device in the graph.
  int place = 0;
};

/// Returns the GPUs of a machine with their places around the ring of find_rings() that carries
/// most, from place 0 on. Empty where no order is better than another one, since there are fewer
/// than four GPUs, or since the paths between each two of them are alike, as by an NVSwitch. The
/// same graph gives the same places. Throws what Paths() and find_rings() throw.
std::vector<PlacedGpu> order_gpus(const Graph& graph, StepBudget& budget);

}  // namespace tutti
