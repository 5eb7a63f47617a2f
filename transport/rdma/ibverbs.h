// Opens devices by libibverbs, which is loaded when the first is opened.
#pragma once

#include <memory>

#include <tutti/config.hpp>

#include "common/random.h"
#include "transport/queue_pair/device.h"
#include "transport/queue_pair/ports.h"

namespace tutti::rdma {

/// Opens the device of a port. Throws `unavailable` with the reason where this build, the machine
/// or the rights of this process do not let it be used, and `usage` where the port has no GID of
/// the number that TUTTI_RDMA_GID_INDEX asks for. `random` outlives it.
std::shared_ptr<qp::Device> open_device(const qp::Port& port, const Config& config, Random& random);

}  // namespace tutti::rdma
