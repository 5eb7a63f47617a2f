// Decides from which memory a communicator sends zero-copy: from Buffers, and from any other memory
// if a transport prefers it.
#pragma once

#include <optional>

#include "runtime/communicator_parts.h"
#include "runtime/engine/engine.h"

namespace tutti {

/// Returns whether the next call may send zero-copy.
bool sends_zero_copy(const CommunicatorParts& parts) noexcept;

/// Returns the buffers of `call` from which messages may be sent zero-copy, or none.
std::optional<ZeroCopyBuffers> zero_copy_of(const CommunicatorParts& parts,
                                            const CallSignature& call, const CallBuffers& buffers);

}  // namespace tutti
