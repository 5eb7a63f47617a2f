// Declares the transport between ranks whose machines have RDMA devices: InfiniBand or RoCE, by
// libibverbs.
#pragma once

#include <memory>

#include "transport/queue_pair/device.h"
#include "transport/registry.h"

namespace tutti::rdma {

TransportEntry entry();

/// Makes the transport over a given device, for tests.
std::unique_ptr<Transport> make_over(const TransportContext& context,
                                     const std::shared_ptr<qp::Device>& device);

}  // namespace tutti::rdma
