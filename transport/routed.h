// A transport made of several transports, each of which reaches some of the peers.
#pragma once

#include <memory>
#include <vector>

#include "transport/channel.h"
#include "transport/own_page.h"

namespace tutti {

/// Returns a transport that reaches each peer by one of `parts`. Each part is connected, numbers
/// all ranks as the communicator does, and reaches some of them. `route` holds for each peer the
/// index of its transport in `parts`, and 0 for this rank. All parts show `status_page` to their
/// peers; where it is null, the first part has made the page that the others show. The first part
/// allocates the memory that this rank registers, which the others share.
std::unique_ptr<Transport> route(std::vector<std::unique_ptr<Transport>> parts,
                                 std::vector<std::size_t> route,
                                 std::shared_ptr<OwnPage> status_page = nullptr);

}  // namespace tutti
