// The memory that the two ends of a ring share: its lines and its counters. ring.h describes how a
// message passes through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/prefetch.h"
#include "common/sync.h"
#include "common/wire.h"
#include "transport/gpu_place.h"
#include "transport/memory.h"
#include "transport/ring/kernel_copies.h"
#include "transport/ring/ring_place.h"
#include "transport/segments.h"
#include "transport/status_page.h"

namespace tutti {

/// Says where a large payload lies that is not in its own ring. It is stored in the line. The
/// payload begins `offset` bytes into
/// - the data of message `message_plus_one` - 1 of the ring `channel` of the other direction, which
///   it answers; or
/// - the writer's registered `segment`, and then the answer may be written at `answer`; or
/// - the reader's own `segment`, for such an answer (with any `message_plus_one`).
/// Where the payload lies in its own ring, or anywhere in the writer's memory, `channel` holds the
/// CopyClass of its call instead.
struct Origin {
  std::uint64_t message_plus_one = 0;
  std::uint64_t offset = 0;
  std::int32_t channel = 0;
  std::uint32_t segment = 0;  ///< Is 0 where the payload lies in no segment.
  Extent answer = {};

  bool outside_ring() const noexcept { return (message_plus_one | segment) != 0; }
  bool answers_ring() const noexcept { return message_plus_one != 0 && segment == 0; }
  bool zero_copy() const noexcept { return message_plus_one == 0 && segment != 0; }
  bool has_copy_class() const noexcept {
    return message_plus_one == 0 && (segment == 0 || segment == kAllMemory);
  }
};
static_assert(sizeof(Origin) == 40 && sizeof(Origin) <= kInlineBytes);
static_assert(std::is_trivially_copyable_v<Origin>, "it is copied into a line byte by byte");

/// The origin of a message that lies anywhere in the writer's memory.
inline Origin at_address(const void* data) noexcept {
  return {0, reinterpret_cast<std::uintptr_t>(data), 0, kAllMemory};
}

/// The origin of a message in its writer's memory, whose answer may be written at `answer`.
inline Origin origin_of(const Memory& message, const Extent& answer = {}) noexcept {
  if (message.kind != MemoryKind::shared) return at_address(message.address);
  return {0, message.offset, 0, message.segment, answer};
}

struct alignas(kCacheLine) Line {
  sync::Atomic<std::uint64_t> sequence;
  Header header;
  std::byte payload[kInlineBytes];
};
static_assert(kCacheLine == kRingAlign && sizeof(Line) == kCacheLine &&
              alignof(Line) == kCacheLine);
static_assert(offsetof(Line, sequence) == 0 && offsetof(Line, header) == 8);
static_assert(offsetof(Line, payload) + kInlineBytes == kCacheLine);

/// The shared memory of one ring: this record, and `data_bytes` of payload memory behind it. All
/// bytes are zero when it is created. Payloads start on a page, as large user buffers do: 64 bytes
/// further, each load of a copy from a page-aligned buffer waits for the store before it, whose
/// address ends in the same 12 bits (64 KiB all-reduce 10.2 us, against 8.2).
struct alignas(4096) RingMemory {
  // Only the reader writes the following four.
  alignas(kCacheLine) sync::Atomic<std::uint64_t> released;
  /// Counts the messages up to the last answered one. It is written before `released`.
  sync::Atomic<std::uint64_t> answered;
  sync::Atomic<bool> gets;  ///< Says that messages may lie in kAllMemory.
  /// ReadTimes by CopyClass, from class 1 on.
  sync::Atomic<std::uint32_t> read_times[CopyClass::kMost];
  // Only the writer writes the rest.
  alignas(kCacheLine) Line lines[kLines];
  std::uint64_t home;  ///< The address of this record in the writer's process, or 0.
  GpuPlace gpu;        ///< Each end writes its own words.

  static constexpr std::size_t bytes(std::size_t data_bytes) {
    return sizeof(RingMemory) + data_bytes;
  }
  std::byte* data() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};

static_assert(sizeof(RingMemory) % 4096 == 0, "payloads start on a page");
static_assert(offsetof(RingMemory, released) == 0 && offsetof(RingMemory, lines) == kCacheLine,
              "the reader and the writer store to lines of their own");
static_assert(offsetof(RingMemory, home) == (1 + kLines) * kCacheLine);

}  // namespace tutti
