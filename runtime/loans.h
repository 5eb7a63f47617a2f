// Which memory a communicator lends to its peers for zero-copy messages: that of Buffers, and any
// other memory if a transport can use it.
#pragma once

#include <optional>

#include "runtime/communicator_parts.h"
#include "runtime/engine/engine.h"

namespace tutti {

/// Returns whether this rank lends memory to its peers, which may include that of the next call.
bool lends(const CommunicatorParts& parts) noexcept;

/// Returns the buffers of `call` that are lent, or none if no buffer is.
std::optional<LentBuffers> lent_of(const CommunicatorParts& parts, const CallSignature& call,
                                   const CallBuffers& buffers);

}  // namespace tutti
