// Defines what the two ends of a ring say to each other about where it lies for kernels of GPUs.
// The words are in the ring's memory, and each end writes its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/sync.h"

namespace tutti {

/// A ring for kernels may lie in the memory of the reader's GPU instead of the host's. The reader
/// offers memory there; the writer maps it and writes a pattern; the reader looks whether the
/// pattern arrives whole and in order, and decides. transport/cuda_ipc/ has both ends.
struct GpuPlace {
  enum class Reader : std::uint32_t {
    silent,   ///< Has said nothing.
    none,     ///< The ring stays in the host's memory.
    offered,  ///< `offer` is there.
    good,     ///< The pattern came as it was written: the ring lies on the GPU.
    bad,      ///< It did not: the ring stays in the host's memory.
    gone,     ///< The reader has ended before it decided.
  };
  enum class Writer : std::uint32_t {
    silent,
    claimed,  ///< Is about to map what is offered.
    refused,  ///< Cannot map it: the ring stays in the host's memory.
    mapped,   ///< Has mapped it, and given the pattern's kernel to its GPU.
    wrote,    ///< That kernel has ended.
    closed,   ///< Has unmapped it, and writes no more.
  };
  struct Offer {
    std::uint64_t number = 0;  ///< The reader's process finds the piece by it.
    std::uint64_t offset = 0;
    std::array<std::byte, 64> handle{};
  };

  alignas(64) sync::Atomic<Reader> reader;  // Zeroed memory is a silent end.
  Offer offer;
  alignas(64) sync::Atomic<Writer> writer;
};
static_assert(std::is_trivially_copyable_v<GpuPlace::Offer>);

}  // namespace tutti
