#include "runtime/zero_copy.h"

#include <cassert>

#include "collectives/schedule/semantics.h"
#include "runtime/call.h"
#include "runtime/engine/execution.h"

namespace tutti {

bool sends_zero_copy(const CommunicatorParts& parts) noexcept {
  const Segments* const segments = parts.transport->registered();
  return (segments != nullptr && !segments->empty()) || parts.transport->prefers_zero_copy();
}

bool kernel_may_copy(const CommunicatorParts& parts, Collective what, std::size_t bytes) noexcept {
  // A call with a root need not wait for its readers while all of its data fits in the rings.
  const std::size_t least =
      collectives::has_root(what) ? std::size_t{256} << 10 : CopyClass::kLeastBytes;
  return !collectives::reduces(what) && bytes >= least && CopyClass::of(bytes) != 0 &&
         parts.machine_ranks <= parts.machine_cores && copies_by_kernel_pay();
}

std::optional<ZeroCopyBuffers> zero_copy_of(const CommunicatorParts& parts,
                                            const CallSignature& call, const CallBuffers& buffers) {
  assert(call.lengths == 0 && !call.accumulates_f32);
  const Segments* const registered = parts.transport->registered();
  const Segments* const segments =
      registered != nullptr && !registered->empty() ? registered : nullptr;
  const auto bytes =
      static_cast<std::size_t>(call.count) * element_bytes(call.type, call.reduction);
  const auto [in_bytes, out_bytes] =
      buffer_sizes(call.what, bytes, parts.rank == call.root, parts.size);
  const bool ordinary = parts.transport->prefers_zero_copy();
  const bool kernel_copies = kernel_may_copy(parts, call.what, bytes);
  const auto memory_of = [&](const std::byte* data, std::size_t of) {
    Memory memory{const_cast<std::byte*>(data), of};
    const auto extent = segments != nullptr ? segments->extent_of(data, of) : std::nullopt;
    if (extent) {
      memory.kind = MemoryKind::shared;
      memory.segment = extent->segment;
      memory.offset = extent->offset;
      assert(extent->segment != 0 && extent->segment != kAllMemory);
    }
    return extent || ordinary || kernel_copies ? memory : Memory();
  };
  const Memory input = memory_of(buffers.input, in_bytes);
  const Memory output = memory_of(buffers.output, out_bytes);
  if (!input && !output) return std::nullopt;
  const auto in = reinterpret_cast<std::uintptr_t>(buffers.input);
  const auto out = reinterpret_cast<std::uintptr_t>(buffers.output);
  const bool apart = in + in_bytes <= out || out + out_bytes <= in;
  return ZeroCopyBuffers{input, output, !apart, ordinary, kernel_copies};
}

}  // namespace tutti
