// What a communicator lends its peers: memory of Buffers, and where a transport takes it any
// memory.
#pragma once

#include <optional>

#include "runtime/communicator_parts.h"
#include "runtime/engine/execution.h"

namespace tutti {

/// Whether this rank lends memory to its peers, perhaps that of the next call.
bool lends(const CommunicatorParts& parts) noexcept;

/// Where the buffers of `call` are lent, if one of them is.
std::optional<LentBuffers> lent_of(const CommunicatorParts& parts, const CallSignature& call,
                                   const CallBuffers& buffers);

}  // namespace tutti
