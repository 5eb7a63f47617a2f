// The interface of this room: kernels that reduce n inputs into m outputs in one pass over memory.
// Every step of every schedule applies one of them to its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tutti/reduction.hpp>
#include <tutti/types.hpp>

namespace tutti {

/// Arguments that few calls need. Bit k of a mask stands for operand k, so a call that sets a mask
/// has at most 64 operands of that kind.
struct CombineExtras {
  /// For premul_sum: these inputs are multiplied by *premultiply, an element of the call's type,
  /// before they are reduced. They are the operands that hold this rank's own input; an operand
  /// from a message was multiplied by its sender. A step with one such input multiplies it and is
  /// not a copy. The product of 16- and 8-bit floats is rounded to the type, as it is in a message,
  /// unless an operand of the step holds f32.
  std::uint64_t premultiplied_inputs = 0;
  const void* premultiply = nullptr;
  /// With accumulate = f32: these operands hold f32, 4 bytes an element, instead of the type.
  /// `count` is in elements, so a pointer into such an operand advances by 4 bytes for each. An
  /// output may be exactly one of the inputs only if both hold f32 or neither does.
  std::uint64_t f32_inputs = 0;
  std::uint64_t f32_outputs = 0;
  const UserReduction* user = nullptr;  ///< Read by combine_user alone.
};

/// The arguments of a kernel, which computes out[k][i] = in[0][i] op in[1][i] op ... (a left fold,
/// in the order given) for every k and every i < count. A single input is copied. Each output may
/// be exactly one of the inputs; any other overlap is an error of the caller. Pointers need not be
/// aligned. 16- and 8-bit floats are accumulated in f32 and rounded once, to nearest even.
struct CombineArgs {
  const void* const* in;
  int inputs;  ///< At least 1.
  void* const* out;
  int outputs;        ///< At least 1.
  std::size_t count;  ///< Number of elements.
  /// The result is divided by this number before it is rounded and stored (avg).
  std::uint32_t divide_by = 1;
  /// If bit k is set, out[k] is written with streaming stores, which bypass the caches, unless
  /// out[k] is also an input.
  std::uint64_t stream_outputs = 0;
  /// If bit k is set, out[k] is in no cache of this core, and is prefetched.
  std::uint64_t fetch_outputs = 0;
  const CombineExtras* extras = nullptr;  ///< May be null; combine_user needs it.
};
static_assert(std::is_trivially_copyable_v<CombineArgs> &&
              std::is_trivially_copyable_v<CombineExtras>);
using CombineFunction = void (*)(const CombineArgs&);

/// Returns the kernel for this machine's instruction set, which is chosen once per process. Throws
/// `usage` if the type has no such reduction; the message names the pair and the reductions that
/// the type has.
CombineFunction combine_function(DataType type, Op op);

/// Returns the kernel that reads the masks of f32 operands. `accumulate` is accumulation_type(type)
/// or the type itself; anything else is a `usage` error.
///
/// The caller holds messages and scratch in `accumulate` (sizes and offsets of these operands, of
/// their slots and of the pieces cut for them are multiples of size_of(accumulate)), holds the
/// buffers of the call in `type`, and sets the masks for each step. A step with a single input goes
/// through this function, too, because it converts, unless all operands of the step have the same
/// type.
CombineFunction combine_function(DataType type, Op op, DataType accumulate);

/// Returns combine_user after it has checked `reduction`. Throws `usage` if the function is null or
/// the size of an element is out of range.
CombineFunction combine_function(const UserReduction& reduction);

/// Reduces with args.extras->user. An exception of its function passes through; the outputs are
/// then partly written.
void combine_user(const CombineArgs& args);

/// Copies in[0] to all outputs; `count` is in bytes. Collectives that do not reduce use it for
/// every type.
void combine_copy(const CombineArgs& args);

}  // namespace tutti
