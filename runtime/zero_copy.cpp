#include "runtime/zero_copy.h"

#include <cassert>

#include "runtime/call.h"

namespace tutti {

bool sends_zero_copy(const CommunicatorParts& parts) noexcept {
  const Segments* const segments = parts.transport->registered();
  return (segments != nullptr && !segments->empty()) || parts.transport->prefers_zero_copy();
}

std::optional<ZeroCopyBuffers> zero_copy_of(const CommunicatorParts& parts,
                                            const CallSignature& call, const CallBuffers& buffers) {
  assert(call.lengths == 0 && !call.accumulates_f32);
  const Segments* const segments = parts.transport->registered();
  const auto bytes =
      static_cast<std::size_t>(call.count) * element_bytes(call.type, call.reduction);
  const auto [in_bytes, out_bytes] =
      buffer_sizes(call.what, bytes, parts.rank == call.root, parts.size);
  const auto memory_of = [&](const std::byte* data, std::size_t of) {
    Memory memory{const_cast<std::byte*>(data), of};
    const auto extent = segments != nullptr ? segments->extent_of(data, of) : std::nullopt;
    if (extent) {
      memory.kind = MemoryKind::shared;
      memory.segment = extent->segment;
      memory.offset = extent->offset;
      assert(extent->segment != 0 && extent->segment != kAllMemory);
    }
    return extent || parts.transport->prefers_zero_copy() ? memory : Memory();
  };
  const Memory input = memory_of(buffers.input, in_bytes);
  const Memory output = memory_of(buffers.output, out_bytes);
  if (!input && !output) return std::nullopt;
  const auto in = reinterpret_cast<std::uintptr_t>(buffers.input);
  const auto out = reinterpret_cast<std::uintptr_t>(buffers.output);
  const bool apart = in + in_bytes <= out || out + out_bytes <= in;
  return ZeroCopyBuffers{input, output, !apart};
}

}  // namespace tutti
