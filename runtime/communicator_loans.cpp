// What a communicator lends its peers: memory of Buffers, and where a transport takes it any
// memory.
#include "runtime/call.h"
#include "runtime/communicator_impl.h"

namespace tutti {

bool CommunicatorImpl::lends() const noexcept {
  return (segments_ != nullptr && !segments_->empty()) || parts_.transport->prefers_zero_copy();
}

std::optional<Registration> CommunicatorImpl::lend(std::size_t bytes) {
  check_usable("Buffer::allocate");
  last_plan_.reset();  // programs for calls that lend are others
  return parts_.transport->allocate_registered(bytes);
}

std::optional<LentBuffers> CommunicatorImpl::lent_of(const CallSignature& call,
                                                     const CallBuffers& buffers) const {
  const auto bytes =
      static_cast<std::size_t>(call.count) * element_bytes(call.type, call.reduction);
  const auto [in_bytes, out_bytes] =
      buffer_sizes(call.what, bytes, parts_.rank == call.root, parts_.size);
  const auto memory_of = [&](const std::byte* data, std::size_t of) {
    Memory memory{const_cast<std::byte*>(data), of};
    const auto extent = segments_ != nullptr ? segments_->extent_of(data, of) : std::nullopt;
    if (extent) {
      memory.kind = MemoryKind::shared;
      memory.segment = extent->segment;
      memory.offset = extent->offset;
    }
    return extent || parts_.transport->prefers_zero_copy() ? memory : Memory();
  };
  const Memory input = memory_of(buffers.input, in_bytes);
  const Memory output = memory_of(buffers.output, out_bytes);
  if (!input && !output) return std::nullopt;
  const auto in = reinterpret_cast<std::uintptr_t>(buffers.input);
  const auto out = reinterpret_cast<std::uintptr_t>(buffers.output);
  const bool apart = in + in_bytes <= out || out + out_bytes <= in;
  return LentBuffers{input, output, !apart};
}

}  // namespace tutti
