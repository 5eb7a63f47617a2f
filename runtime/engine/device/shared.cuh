// The threads of a block share these records while they walk a lane.
#pragma once

#include "compute/cuda/combine.cuh"
#include "runtime/engine/device/kernels.h"
#include "runtime/engine/device/records.h"

namespace tutti::device {

/// Describes what a step moves in the current piece; see Execution::load_of().
struct Load {
  std::uint32_t last;  ///< 1 for the last piece, else 0.
  bool moves;          ///< Both sides skip a later piece that is empty.
  std::uint64_t bytes;
  Header header;
};

/// Holds what the threads of a block share: where the block is, which thread 0 writes, and the
/// operands of the current step. Registers are for the elements.
struct Shared {
  static constexpr std::uint32_t kNothing = 0xFFFF'FFFF;
  static constexpr std::uint32_t kEnd = 0;    ///< The host or a mismatch ends the block.
  static constexpr std::uint32_t kOrder = 1;  ///< A step of another lane is not done.
  static constexpr std::uint32_t kFirst = 2;  ///< The number of operand 0.

  ProgramRecord program;
  std::uint32_t lane;
  std::uint32_t first_step;  ///< Of the lane, in the program.
  std::uint32_t steps;       ///< Of the lane.
  std::uint64_t piece;
  std::uint64_t walked;
  std::uint32_t at;  ///< The index in the lane of the current step.
  /// The first of what the block has awaited in vain. Operands are numbered as the step has them,
  /// inputs first.
  std::uint32_t missing;
  // The current step, as long as there is one.
  Program::Step step;
  Load load;
  BlockOperands operands;
  std::byte* addresses[kMostOperands];  ///< Of the inputs, then of the outputs.
};
// A shared variable has no constructor.
union SharedStorage {
  __device__ SharedStorage() {}
  Shared shared;
};

}  // namespace tutti::device
