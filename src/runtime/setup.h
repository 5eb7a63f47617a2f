// How a communicator comes to be: store, hellos, agreement, transport.
#pragma once

#include <memory>
#include <vector>

#include "runtime/communicator_impl.h"

namespace tutti {

/// Communicator::from_env.
CommunicatorParts join_environment(const Config& config);

/// Communicator::create.
CommunicatorParts join_store(std::shared_ptr<Store> store, int rank, int size,
                             const Config& config);

/// Communicator::in_process.
std::vector<CommunicatorParts> join_in_process(int size, const Config& config);

}  // namespace tutti
