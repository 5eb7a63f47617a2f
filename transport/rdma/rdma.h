// Declares the transport between ranks whose machines have RDMA devices: InfiniBand or RoCE, by
// libibverbs.
#pragma once

#include <memory>
#include <vector>

#include "transport/queue_pair/device.h"
#include "transport/registry.h"

namespace tutti::rdma {

TransportEntry entry();

/// Makes the transport over given ports, for tests.
std::unique_ptr<Transport> make_over(const TransportContext& context,
                                     std::vector<std::shared_ptr<qp::Device>> ports);

}  // namespace tutti::rdma
