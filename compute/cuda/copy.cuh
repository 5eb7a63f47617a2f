// Copies one input to all outputs.
#pragma once

#include "compute/cuda/pass.cuh"

namespace tutti::device {

template <class Unit, int kUnits>
__device__ void copy_units(const BlockOperands& operands, std::uint64_t at, std::uint64_t stride) {
  Unit units[kUnits];
#pragma unroll
  for (int u = 0; u < kUnits; ++u)
    units[u] = *reinterpret_cast<const Unit*>(operands.in[0] + at + u * stride);
#pragma unroll 1
  for (std::uint32_t k = 0; k < operands.outputs; ++k)
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
      *reinterpret_cast<Unit*>(operands.out[k] + at + u * stride) = units[u];
}

/// Copies bytes [begin, begin + units * sizeof(Unit)), from and to addresses that are aligned.
template <class Unit>
__device__ void copy_aligned(const BlockOperands& operands, std::uint64_t begin,
                             std::uint64_t units) {
  constexpr std::uint64_t kUnits = 4;
  const std::uint64_t threads = all_threads(), stride = threads * sizeof(Unit);
  std::uint64_t unit = own_thread();
#pragma unroll 1
  for (; unit + (kUnits - 1) * threads < units; unit += kUnits * threads)
    copy_units<Unit, kUnits>(operands, begin + unit * sizeof(Unit), stride);
#pragma unroll 1
  for (; unit < units; unit += threads)
    copy_units<Unit, 1>(operands, begin + unit * sizeof(Unit), stride);
}

/// Copies `bytes` with all threads of the block, in the widest units to which all
/// operands are aligned alike. There is no barrier in it.
__device__ inline void copy_bytes(const BlockOperands& operands, std::uint64_t bytes) {
  const std::uint32_t offset = low_bits(operands.in[0]) % kVectorBytes;
  std::uint32_t differ = 0;
#pragma unroll 1
  for (std::uint32_t k = 0; k < operands.outputs; ++k)
    differ |= (low_bits(operands.out[k]) ^ offset) % kVectorBytes;
  const std::uint32_t width = differ == 0 ? kVectorBytes : differ % 4 == 0 ? 4 : 1;
  std::uint64_t head = (width - offset % width) % width;
  if (head > bytes) head = bytes;
  const std::uint64_t units = (bytes - head) / width;
  if (width == kVectorBytes)
    copy_aligned<uint4>(operands, head, units);
  else if (width == 4)
    copy_aligned<std::uint32_t>(operands, head, units);
  else
    copy_aligned<std::uint8_t>(operands, head, units);
  const std::uint64_t between = units * width, threads = all_threads();
#pragma unroll 1
  for (std::uint64_t i = own_thread(); i < bytes - between; i += threads)
    copy_units<std::uint8_t, 1>(operands, i < head ? i : i + between, 0);
}

}  // namespace tutti::device
