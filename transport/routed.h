// Several transports in one communicator: each peer is reached by one of them.
#pragma once

#include <memory>
#include <vector>

#include "transport/channel.h"

namespace tutti {

/// The ranks of a communicator reached by several transports, each of which is connected, knows all
/// ranks under their own numbers, and reaches some of them. `route` has for each peer the index of
/// its transport in `parts`, and 0 for this rank. All parts show `status_page`; where it is null
/// the first one made the page that the others show. The first one lends what this rank lends.
std::unique_ptr<Transport> route(std::vector<std::unique_ptr<Transport>> parts,
                                 std::vector<std::size_t> route,
                                 std::unique_ptr<StatusPage> status_page = nullptr);

}  // namespace tutti
