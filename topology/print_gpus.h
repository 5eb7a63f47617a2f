// Prints the GPUs of a machine as text, and as a part of its picture.
#pragma once

#include <string>

#include "topology/gpus.h"
#include "topology/machine.h"

namespace tutti {

/// Returns a line for each GPU, and a table of the paths between them with a legend. If there is no
/// GPU, it says what was looked for.
std::string gpus_text(const MachineGpus& gpus);

/// Returns the machine's tree in Graphviz's language, as to_dot(machine) does, with the GPUs in
/// their NUMA nodes, and lines for NVLinks.
std::string to_dot(const Machine& machine, const MachineGpus& gpus);

}  // namespace tutti
