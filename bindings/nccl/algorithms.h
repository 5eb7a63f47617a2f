// Translates the names of NCCL's algorithms, as NCCL_ALGO and ncclCollConfig_t::algSelection give
// them.
#pragma once

#include <string>
#include <string_view>
#include <tutti/config.hpp>

namespace tutti::nccl {

/// A choice for NCCL_ALGO, whose form is "list;function:list;...": a list has names with commas
/// between, of which the first that there is for a collective is taken, or those that are left out
/// after '^'. Ring is tutti's ring, Tree its double_binary_tree. Where no name of a list exists
/// here, the library chooses. Throws ncclInvalidArgument for a function that does not exist.
Select select_as(const std::string& lists);

/// Returns the algorithm for one call: the first name of `list` that `what` has, or "" if it has
/// none. Names may end in a protocol (RING_LL128), and may be shortened.
std::string_view algorithm_in(std::string_view list, Collective what);

}  // namespace tutti::nccl
