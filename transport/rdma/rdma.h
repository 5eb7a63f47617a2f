// Declares the transport between ranks whose machines have RDMA devices: InfiniBand or RoCE, by
// libibverbs.
#pragma once

#include <memory>
#include <vector>

#include "transport/queue_pair/device.h"
#include "transport/registry.h"

namespace tutti::rdma {

TransportEntry entry();

/// A rank makes queue pairs to so many peers at the start, and to others when there is a message.
/// In rings, and in jobs of 64 ranks, no others are needed, and these show that the network works.
inline constexpr int kPeersAtOnce = 64;

/// Makes the transport over given ports, for tests.
std::unique_ptr<Transport> make_over(const TransportContext& context,
                                     std::vector<std::shared_ptr<qp::Device>> ports,
                                     int at_once = kPeersAtOnce);

}  // namespace tutti::rdma
