// Prints a machine as text and as a picture.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/machine.h"

namespace tutti {

std::string_view to_string(NodeKind kind);
/// Returns a text of one line in which a terminal finds nothing to obey.
std::string on_one_line(std::string_view text);

std::string size_text(std::size_t bytes);  ///< For example "1.25 MiB".
std::string to_text(const Node& node);     ///< For example "package 0", "L2 2 MiB" or "core 3".

/// Returns the tree as text, one line for each node; a node with a single child shares its line
/// with it.
std::string to_text(const Machine& machine);

/// Returns the tree in Graphviz's language, as nested boxes. Cores that this process may not use
/// are grey.
std::string to_dot(const Machine& machine);

/// Returns a table of the links between ranks on the given cpus, with a legend.
std::string links_text(const Machine& machine, const std::vector<Cpus>& ranks);

}  // namespace tutti
