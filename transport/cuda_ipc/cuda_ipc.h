// Registers cuda_ipc, by which messages of kernels go through the memory of the receiving GPU. It
// moves no message of the host: the rings of another transport, between ranks that share memory,
// lie there for kernels.
#pragma once

#include <string_view>

#include "transport/registry.h"

namespace tutti::cuda_ipc {

/// The entry carries no messages between hosts, so no route has it. Users name it in
/// TUTTI_TRANSPORTS.
TransportEntry entry();

/// Returns whether the transports that a configuration names are all, or this is one of them.
bool allowed(std::string_view names);

}  // namespace tutti::cuda_ipc
