// combine: reduce n inputs into m outputs in one pass over memory. What every step of every
// schedule does to its bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tutti/reduction.hpp>
#include <tutti/types.hpp>

namespace tutti {

/// What few calls need. Bit k of a mask stands for operand k: calls that set one have at most 64
/// operands of that kind.
struct CombineExtras {
  /// premul_sum: these inputs are multiplied by *premultiply, an element of the call's type, before
  /// they are reduced. For operands that hold this rank's own input; a message was multiplied where
  /// it came from. A step with one such input multiplies, and is no copy. The product of 16- and
  /// 8-bit floats is rounded to the type, as in a message, but where an operand is wide.
  std::uint64_t premultiplied_inputs = 0;
  const void* premultiply = nullptr;
  /// With accumulate = f32: these operands hold f32, 4 bytes an element, in place of the type.
  /// `count` is in elements, so that a pointer into such an operand advances by 4 bytes for each.
  /// An output may be exactly an input only if both are wide or both are not.
  std::uint64_t f32_inputs = 0;
  std::uint64_t f32_outputs = 0;
  const UserReduction* user = nullptr;  ///< For combine_user.
};

/// out[k][i] = in[0][i] op in[1][i] op ... (a left fold, in the order given) for every k and every
/// i < count. One input is copied. Each output may be exactly one of the inputs; any other overlap
/// is the caller's mistake. Pointers need not be aligned. 16- and 8-bit floats are accumulated in
/// f32 and rounded once, to nearest even.
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
  std::uint64_t fetch_outputs = 0;  ///< Bit k: out[k] is in no cache of this core, fetched ahead.
  const CombineExtras* extras = nullptr;  ///< Read where a member of it says so.
};
using CombineFunction = void (*)(const CombineArgs&);

/// The kernel for this machine, chosen once per process. Throws `usage` naming the pair where the
/// type has no such reduction, and what it has.
CombineFunction combine_function(DataType type, Op op);

/// What partial results are held in between steps with accumulate = f32: f32 for 16- and 8-bit
/// floats, else the type itself.
DataType accumulation_type(DataType type) noexcept;

/// The kernel that reads the masks of wide operands, `accumulate` being accumulation_type(type) or
/// the type itself; anything else is a `usage` error.
///
/// The caller holds messages and scratch in `accumulate` (sizes and offsets of these operands, of
/// their slots and of the pieces cut for them count size_of(accumulate)), buffers of the call in
/// `type`, and sets the masks for each step. Steps of one input go through this function, too,
/// unless all their operands are alike: it converts.
CombineFunction combine_function(DataType type, Op op, DataType accumulate);

/// combine_user, after checks: `usage` for an element of no or too many bytes, or no function.
CombineFunction combine_function(const UserReduction& reduction);

/// Reduces by args.extras->user. What its function throws passes through; outputs are then in part
/// written.
void combine_user(const CombineArgs& args);

/// Copies in[0] to all outputs; `count` is bytes. For collectives that do not reduce, whatever the
/// type.
void combine_copy(const CombineArgs& args);

}  // namespace tutti
