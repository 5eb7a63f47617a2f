// combine: reduce n inputs into m outputs in one pass over memory. What every step of every
// schedule does to its bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tutti/types.hpp>

namespace tutti {

/// out[k][i] = in[0][i] op in[1][i] op ... (a left fold, in the order given) for every k and every
/// i < count. One input is copied. Each output may be exactly one of the inputs; any other overlap
/// is the caller's mistake. Pointers need not be aligned. 16-bit floats are accumulated in f32 and
/// rounded once, to nearest even.
struct CombineArgs {
  const void* const* in;
  int inputs;  ///< At least 1.
  void* const* out;
  int outputs;        ///< At least 1.
  std::size_t count;  ///< Elements.
  std::uint32_t divide_by =
      1;  ///< The result is divided by this before it is rounded and stored (avg).
  std::uint64_t stream_outputs =
      0;  ///< Bit k: out[k] is written past the caches, if it is not also an input.
  std::uint64_t fetch_outputs = 0;  ///< Bit k: out[k] is in no cache: its lines are fetched ahead.
};
using CombineFunction = void (*)(const CombineArgs&);

/// The kernel for this machine, chosen once per process. Throws `usage` naming the pair where the
/// type has no such reduction.
CombineFunction combine_function(DataType type, Op op);

/// Copies in[0] to all outputs; `count` is bytes. For collectives that do not reduce, whatever the
/// type.
void combine_copy(const CombineArgs& args);

}  // namespace tutti
