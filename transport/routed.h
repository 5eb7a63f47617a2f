// Several machines in one communicator: the ranks of the own one by one transport, all others by
// another.
#pragma once

#include <memory>
#include <vector>

#include "transport/channel.h"

namespace tutti {

/// Both are connected: `near` joins this rank and its machine's others, `near_rank` by rank (below
/// 0: on another machine); `far` has all ranks under their own numbers, reaches those at least
/// that `near` does not, and shows `near`'s status page.
std::unique_ptr<Transport> route(std::unique_ptr<Transport> near, std::unique_ptr<Transport> far,
                                 std::vector<int> near_rank, int rank);

}  // namespace tutti
