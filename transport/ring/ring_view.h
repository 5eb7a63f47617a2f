// One end of a ring as plain addresses and numbers: what a device needs to use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/sync.h"

namespace tutti {

struct Line;
struct GpuPlace;

/// Where the lines, the payloads and the credits of a ring are, and how far this end has come. The
/// addresses are those of this process. Once a view is in use, nobody else uses this end, and a
/// peer that sleeps is woken by others: a view has no doorbell.
///
/// To post message n (`next`), its sender waits until n - *released < kLines, and for a payload
/// that does not fit in the line until the bytes at place() are free; `freed` are at first. It
/// writes the payload, the header and, for a large payload, an Origin of zeros into the line, and
/// last the line's sequence, n + 1, with release order. The receiver waits for that sequence with
/// acquire order, reads, and stores n + 1 in *released with release order. Bytes are free again
/// when the message whose payload they held has been released.
struct RingView {
  Line* lines = nullptr;
  /// Points to the number of messages released, which the receiver writes.
  sync::Atomic<std::uint64_t>* released = nullptr;
  std::byte* data = nullptr;
  std::uint64_t data_bytes = 0;
  std::uint64_t next = 0;      ///< The number of messages that this end has posted or released.
  std::uint64_t position = 0;  ///< Payload bytes that these have taken up, gaps included.
  std::uint64_t freed = 0;     ///< How many of these, from the first on, are free again.
  GpuPlace* gpu = nullptr;     ///< Both ends say there where the ring lies on GPUs.
};
static_assert(std::is_trivially_copyable_v<RingView> && std::is_standard_layout_v<RingView>);
static_assert(sizeof(RingView) == 64 && offsetof(RingView, data_bytes) == 24 &&
                  offsetof(RingView, freed) == 48,
              "a device reads it by these offsets");

}  // namespace tutti
