// The kernels of the device engine, as the code that a CUDA driver loads. For each data type there
// is `tutti_run_<to_string(type)>`, which executes programs of all reductions of the type, and
// `tutti_run_bytes` executes programs that only copy. Each takes a CallRecord, and blocks of at
// most 512 threads. Folds of the kind `user` have no kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::device {

/// The most operands of a step (ProgramHead::widest_step): their addresses lie in shared memory.
/// The host refuses programs with wider steps.
inline constexpr std::uint64_t kMostOperands = 1024;

/// The most threads of a block.
inline constexpr std::uint32_t kMostThreads = 512;

/// Returns a fat binary of all kernels, for cuModuleLoadData(), or nothing if the library was built
/// without nvcc.
std::span<const std::byte> kernels() noexcept;

}  // namespace tutti::device
