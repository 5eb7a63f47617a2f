// Orders the GPUs of a machine such that those with fast links between them are neighbours.
#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/search/flow.h"

namespace tutti {

/// Returns the GPUs of a machine, by the names of their devices (their addresses on the PCI bus),
/// in the order in which the ring of find_rings() that carries most passes by them. Empty where no
/// order is better than another one, since there are fewer than four GPUs, or since the paths
/// between each two of them are alike, as by an NVSwitch. The same graph gives the same order.
/// Throws what Paths() and find_rings() throw.
std::vector<std::string> order_gpus(const Graph& graph, StepBudget& budget);

}  // namespace tutti
