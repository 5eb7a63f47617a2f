// A schedule compiled for one call. A program is plain data: flat records of numbers and codes,
// without a pointer. An engine binds it to memory, channels and kernels and walks it without
// planning; a kernel on a GPU can read it as it is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <tutti/schedule.hpp>

#include "common/wire.h"

namespace tutti {

/// The blocks of one call whose lengths differ, as this rank knows them. By position in the buffer,
/// first those of the input, then those of the output. A block that is in one buffer alone has its
/// length in both places.
struct BlockTable {
  struct Block {
    std::uint64_t bytes;
    std::uint64_t offset;
  };
  CallSignature call;
  std::uint32_t fingerprint = 0;
  std::vector<Block> blocks;  ///< Twice as many as ranks.
};

/// A call's share of pieces: each `of`-th, from `number` on, over channels of their own. So stripes
/// have no byte, no message and no order in common.
struct Stripe {
  std::uint64_t number = 0;
  std::uint64_t of = 1;

  bool operator==(const Stripe&) const = default;
};
inline constexpr int kStripeChannels = 1 << 12;  ///< From a stripe's channels to the next one's.
inline constexpr int kMostStripes = 8;

/// Holds what describes a program as a whole. All pieces but the last are of one shape, so where an
/// array has two numbers, [0] is of a full piece and [1] of the last.
struct ProgramHead {
  CallSignature call;
  /// Lengths come with each call, in a BlockTable: of a step are known where its blocks stand in
  /// the table. `pieces` and all bytes but those of scratch and of a full piece mean nothing.
  bool variable = false;
  bool lends = false;  ///< Some messages may be lent.
  std::uint32_t fingerprint = 0;
  std::uint64_t pieces = 1;
  Stripe stripe;
  std::uint64_t piece_bytes = 0;  ///< From one piece to the next in input and output.
  int widening = 0;  ///< Messages are 2^this times as long as what they carry is in the buffers.
  // From one segment to the next: in the call's buffers, in messages (packed: the segment itself),
  // and in scratch, where each chunk has a place of its own whatever the piece, so that what orders
  // chunks orders bytes.
  std::array<std::uint64_t, 2> segment_stride{};
  std::array<std::uint64_t, 2> chunk_bytes{};
  std::uint64_t scratch_stride = 0;
  std::uint64_t scratch_bytes = 0;
  std::uint64_t widest_step = 0;  ///< The most operands of a step.

  bool operator==(const ProgramHead&) const = default;
};

/// Immutable after compile(). Offsets are bytes from the start of the operand's buffer.
struct Program : ProgramHead {
  static constexpr std::uint32_t kNone = 0xffff'ffff;
  struct Operand {
    Place place;
    bool lent_in_place = false;  ///< In calls in place, too.
    bool comes_back = false;     ///< Its answer may be put into the output, at `offset`.
    std::uint32_t port;  ///< Peer: index in `receives` (as an input) or `sends` (as an output).
    std::uint32_t partner = kNone;  ///< A message and its answer: the other's number in the step.
    std::uint32_t lender = kNone;   ///< A message that may be lent: the operand that holds it.
    std::array<std::uint64_t, 2>
        offset;  ///< In a variable program's input and output: the block's number in the table.

    bool operator==(const Operand&) const = default;
  };

  /// How a step makes its result from its inputs.
  enum class Fold : std::uint8_t {
    copy,         ///< There is one input, which is copied.
    reduce,       ///< `op` is applied to the inputs from the first to the last.
    fixed_point,  ///< All summands that there are are added in fixed point, in any order.
    user,         ///< As `reduce`, by a function that comes with the call.
  };
  /// The codes by which an engine chooses the kernel of a step.
  struct Kernel {
    Fold fold = Fold::copy;
    DataType type = DataType::uint8;
    Op op = Op::sum;
    DataType accumulate = DataType::uint8;  ///< The type of operands that Masks marks as f32.

    bool operator==(const Kernel&) const = default;
  };
  /// Operands of a step that are not like the others. Bit k stands for input or output k.
  struct Masks {
    std::uint64_t premultiplied_inputs = 0;  ///< They are multiplied before they are reduced.
    std::uint64_t f32_inputs = 0;            ///< They hold Kernel::accumulate in place of the type.
    std::uint64_t f32_outputs = 0;

    bool operator==(const Masks&) const = default;
  };
  struct Step {
    std::uint32_t first_operand;  ///< Inputs, then outputs.
    std::uint32_t inputs;
    std::uint32_t outputs;
    std::uint32_t receives;   ///< Of the inputs: messages.
    std::uint32_t posts;      ///< Of the outputs: messages.
    std::uint32_t segments;   ///< Chunks, where they do not lie side by side everywhere; mostly 1.
    std::uint32_t divide_by;  ///< Post-operation of a completing step (avg), else 1.
    std::uint32_t first_block;           ///< Of a variable program: in the table.
    std::array<std::uint64_t, 2> bytes;  ///< Of the whole slice; a message's length.
    std::uint64_t results;               ///< Outputs that are the call's result, as bits.
    Kernel kernel;
    After after;

    bool copies() const noexcept { return kernel.fold == Fold::copy; }
    bool operator==(const Step&) const = default;
  };
  struct Lane {
    std::uint32_t first_step;
    std::uint32_t steps;

    bool operator==(const Lane&) const = default;
  };
  struct Port {
    int peer;
    int channel;

    bool operator==(const Port&) const = default;
  };

  std::vector<Lane> lanes;
  std::vector<Step> steps;
  std::vector<Operand> operands;
  std::vector<Masks> masks;  ///< By step. Empty where no operand is marked.
  std::vector<Port> receives;
  std::vector<Port> sends;

  bool operator==(const Program&) const = default;
};
static_assert(std::is_trivially_copyable_v<ProgramHead> &&
              std::is_trivially_copyable_v<Program::Operand> &&
              std::is_trivially_copyable_v<Program::Masks> &&
              std::is_trivially_copyable_v<Program::Step> &&
              std::is_trivially_copyable_v<Program::Lane> &&
              std::is_trivially_copyable_v<Program::Port>);

/// How a call's data is cut, from numbers that all ranks know. Both layouts: chunk c of piece p.
struct Cut {
  std::uint64_t pieces;
  std::uint64_t
      piece_elements;  ///< Whole: elements of a full piece. Blocks: of a block's share of it.
  std::array<std::uint64_t, 2>
      chunk_elements;  ///< Of a chunk in a full and in the last piece, before the end cuts it.
  std::uint64_t last_elements;  ///< As piece_elements, of the last piece.
};

/// What the smallest chunk takes up in a message: chunks are whole cache lines, but elements that
/// do not divide one are not aligned.
std::size_t least_chunk_bytes(std::size_t element_bytes);

/// `count`: elements of the vector (whole) or of one block (blocks). Messages are at most
/// `message_bytes`, which must be at least least_chunk_bytes() * widest.
Cut cut(Layout layout, std::uint64_t count, std::size_t element_bytes, int chunks, int widest,
        std::size_t message_bytes);

/// Compiles one rank's schedule for one call; where `call` says that lengths differ, for all calls
/// that differ in `count` and `lengths` alone. `lends`: messages may be lent. Throws `unavailable`
/// where messages are too small for the schedule's widest step.
Program compile(const Schedule& schedule, const CallSignature& call, std::size_t message_bytes,
                bool lends = false, Stripe stripe = {});

/// The most operands on a side of a step of a premultiplied sum, or with accumulate = f32.
inline constexpr std::size_t kMostMarked = 64;

/// What decides whether ranks' schedules can serve a call of a rare kind.
struct Facts {
  int widest = 1;
  int channels = 1;               ///< All channel numbers are below it.
  std::size_t most_operands = 0;  ///< On a side of a step.
  /// Some chunk of an output is written more than once, so that it holds a partial result for a
  /// while. With accumulate = f32 that would be rounded, and not on all ranks alike.
  bool rewrites_output = false;
  /// What a step reduces or completes are all the summands that there are.
  bool reduces_at_once = true;
};
Facts facts_of(std::span<const Schedule> schedules);

/// Bytes of an element in messages and scratch.
std::size_t moved_bytes(const CallSignature& call);

}  // namespace tutti
