// Defines the argument of the two kernels by which the ends of a ring in a GPU's memory find out
// whether what one GPU writes there reaches the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tutti::cuda_ipc {

/// Each kernel has one block of so many threads.
inline constexpr std::uint32_t kPatternThreads = 256;

struct Pattern {
  std::byte* lines;  ///< The GPU that runs the kernel finds 64 lines of 64 bytes here.
  std::byte* data;
  std::uint64_t data_bytes;
  std::uint64_t seed;  ///< Both ends have the same one.
  std::uint64_t*
      result;  ///< The kernel writes this word in pinned memory of the host as its last act.
};
static_assert(std::is_trivially_copyable_v<Pattern>);

// These are the results that the kernels report. `tutti_pattern_write` writes all data, all lines,
// and with release order at system scope the sequence of the first line; then it says kWritten.
// `tutti_pattern_check` looks some thousand times for that sequence, compares everything, sets the
// lines to zero for the messages that follow, and says one of the others.
inline constexpr std::uint64_t kPending = 0, kWritten = 1, kNotSeen = 2, kRight = 3, kWrong = 4;

}  // namespace tutti::cuda_ipc
