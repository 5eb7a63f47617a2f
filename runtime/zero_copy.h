// Decides from which memory a communicator sends zero-copy: from Buffers, and from any other memory
// if a transport prefers it, or if the kernel may copy it from one process to another.
#pragma once

#include <optional>

#include "runtime/communicator_parts.h"
#include "runtime/engine/engine.h"

namespace tutti {

/// Returns whether the next call may send zero-copy.
bool sends_zero_copy(const CommunicatorParts& parts) noexcept;

/// Returns whether the kernel may turn out to be faster than rings for the messages of such a call
/// (see transport/ring/kernel_copies.h). `bytes` are those of the vector or of a block.
bool kernel_may_copy(const CommunicatorParts& parts, Collective what, std::size_t bytes) noexcept;

/// Returns the buffers of `call` from which messages may be sent zero-copy, or none.
std::optional<ZeroCopyBuffers> zero_copy_of(const CommunicatorParts& parts,
                                            const CallSignature& call, const CallBuffers& buffers);

}  // namespace tutti
