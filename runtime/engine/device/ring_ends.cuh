// The two ends of a ring as a kernel uses them; transport/ring/ring_view.h has the protocol. One
// thread uses an end at a time.
#pragma once

#include "runtime/engine/device/records.h"
#include "runtime/engine/device/words.cuh"
#include "transport/ring/ring_place.h"

namespace tutti::device {

static_assert(kRingLines == kLines);

/// Takes the ring that the host offers. Returns false while it is not decided where the ring lies.
template <class End>
__device__ inline bool has_ring(End& end) {
  if (end.lines != nullptr) return true;
  const OfferedRing& offered = *end.offered;
  if (load_acquire_system(&offered.there) == 0) return false;
  end.lines = offered.lines;
  end.released = offered.released;
  end.data = offered.data;
  end.data_bytes = offered.data_bytes;
  return true;
}

/// Returns the line of the next message, or null if it has not arrived.
__device__ inline const RingLine* arrived(RecvEnd& end) {
  if (!has_ring(end)) return nullptr;
  const RingLine* const line = end.lines + end.next % kRingLines;
  return load_acquire_system(&line->sequence) == end.next + 1 ? line : nullptr;
}

/// Returns the payload of the next message, whose line is `line`.
__device__ inline const std::byte* payload_of(const RecvEnd& end, const RingLine& line,
                                              std::uint32_t bytes) {
  if (bytes <= kInlineBytes) return line.payload;
  return end.data + place(end.position, bytes, end.data_bytes) % end.data_bytes;
}

__device__ inline void release(RecvEnd& end, std::uint32_t bytes) {
  if (bytes > kInlineBytes)
    end.position = place(end.position, bytes, end.data_bytes) + padded(bytes);
  store_release_system(end.released, ++end.next);
}

/// Returns the memory of the next message, or null while the ring is full, or is not there. A peer
/// that has released more than was sent never makes room.
__device__ inline std::byte* room_for(SendEnd& end, std::uint32_t bytes) {
  if (!has_ring(end)) return nullptr;
  const std::uint64_t released = load_acquire_system(end.released);
  if (end.next - released >= kRingLines) return nullptr;
  if (bytes <= kInlineBytes) return end.lines[end.next % kRingLines].payload;
  const std::uint64_t at = place(end.position, bytes, end.data_bytes);
  if (at + padded(bytes) - end.freed > end.data_bytes && released > 0) {
    const std::uint64_t freed = end.ends[(released - 1) % kRingLines];
    if (freed > end.freed) end.freed = freed;
  }
  if (at + padded(bytes) - end.freed > end.data_bytes) return nullptr;
  return end.data + at % end.data_bytes;
}

/// Posts the next message, whose payload has been written. A large one lies in the ring, which its
/// line says with an Origin of zeros.
__device__ inline void post(SendEnd& end, const Header& header) {
  RingLine& line = end.lines[end.next % kRingLines];
  line.header = header;
  if (header.length > kInlineBytes) {
    end.position = place(end.position, header.length, end.data_bytes) + padded(header.length);
#pragma unroll
    for (std::uint32_t i = 0; i < sizeof line.payload / 8; ++i)
      reinterpret_cast<std::uint64_t*>(line.payload)[i] = 0;
  }
  end.ends[end.next % kRingLines] = end.position;
  store_release_system(&line.sequence, ++end.next);
}

}  // namespace tutti::device
