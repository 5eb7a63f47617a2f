// A machine for people: as text and as a picture.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/machine.h"

namespace tutti {

std::string_view to_string(NodeKind kind);
std::string size_text(std::size_t bytes);  ///< "1.25 MiB"
std::string to_text(const Node& node);     ///< "package 0", "L2 2 MiB", "core 3".

/// The tree: a line for each node, but that what has one child shares its line.
std::string to_text(const Machine& machine);

/// The same in Graphviz's language: boxes within boxes; cores that this process may not use are
/// grey.
std::string to_dot(const Machine& machine);

/// A table of the links between ranks on the given cpus, with a legend.
std::string links_text(const Machine& machine, const std::vector<Cpus>& ranks);

}  // namespace tutti
