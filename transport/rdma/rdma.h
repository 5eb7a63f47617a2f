// Declares the transport between ranks whose machines have RDMA devices: InfiniBand or RoCE, by
// libibverbs.
#pragma once

#include <memory>
#include <vector>

#include "transport/queue_pair/device.h"
#include "transport/registry.h"

namespace tutti::rdma {

TransportEntry entry();

/// Peers to which queue pairs are made at the start; to others, when there is a message. In rings,
/// trees and jobs of 64 ranks they are all that are needed, and show that the network works.
inline constexpr int kPeersAtOnce = 64;

/// Makes the transport over given ports, for tests.
std::unique_ptr<Transport> make_over(const TransportContext& context,
                                     std::vector<std::shared_ptr<qp::Device>> ports,
                                     int at_once = kPeersAtOnce);

}  // namespace tutti::rdma
