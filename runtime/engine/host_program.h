// A program as the host engine executes it: bound to channels and to kernels of this machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "collectives/schedule/program.h"
#include "compute/combine.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/ports.h"

namespace tutti {

/// A step with the kernel that computes it on this machine.
struct BoundStep : Program::Step {
  CombineFunction combine;
  int element_shift;  ///< `combine` counts in 2^this bytes.
  /// The step brings a message to a place that no other step uses, so that the messages of the next
  /// pieces may be brought with it.
  bool brings_ahead = false;
};

/// Holds how far a lane of a program under way has come.
struct LaneState {
  const BoundStep* first;
  const BoundStep* end;
  const void**
      /// The addresses of all operands of the current step, whether or not they are in hand:
      /// inputs, then outputs.
      addresses;
  const BoundStep* step = nullptr;
  std::uint64_t piece = 0;
  std::uint64_t walked = 0;     ///< The number of pieces that are done.
  std::uint64_t done = 0;       ///< The number of steps that are done, over all pieces.
  std::size_t cursor = 0;       ///< The number of operands of the current step that are in hand.
  std::size_t zero_copies = 0;  ///< The number of those that are zero-copy messages.
};
static_assert(std::is_trivially_copyable_v<BoundStep> && std::is_trivially_copyable_v<LaneState>);

/// A program whose ports are bound to one communicator's channels, and its steps to kernels. It
/// also holds the state of its execution; it has one at a time. The channels outlive it.
struct HostProgram final : BoundProgram {
  HostProgram(Program compiled, Transport& transport);

  std::vector<BoundStep> steps;
  std::vector<SendPort> sends;
  std::vector<RecvPort> receives;
  std::vector<LaneState> lanes;
  /// Indexed by step, with the extras of the call under way; empty if it has none.
  std::vector<CombineExtras> extras;
  std::vector<void*> written;  ///< The addresses that a step of a zero-copy call writes.
  std::vector<std::unique_ptr<HostProgram>> others;  ///< The other stripes of the call.
  /// Whether the kernel may copy the program's messages: it only moves data, and some messages may
  /// be sent zero-copy.
  bool only_moves = false;
  std::vector<std::size_t> sent_bytes;  ///< By port, what a call sends there, if it only moves.

  /// Whether its calls end within two microseconds if they wait for nobody.
  const bool soon =
      !program.variable && program.call.reduction == 0 && program.call.count <= Record::kSoonCount;

 private:
  std::vector<const void*> addresses_;
};

}  // namespace tutti
