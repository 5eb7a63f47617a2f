// A program: a schedule compiled for one kind of call. It is plain data, flat records of numbers
// and codes without a pointer. An engine binds it to memory, channels and kernels, and runs it
// without planning; a kernel on a GPU can read it unchanged.
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

/// Holds the blocks of one variable call, whose lengths differ, as this rank knows them: first
/// those of the input, then those of the output, each indexed by its position in the buffer. If a
/// block is in one of the buffers only, both entries have its length.
struct BlockTable {
  struct Block {
    std::uint64_t bytes;
    std::uint64_t offset;
  };
  CallSignature call;
  std::uint32_t fingerprint = 0;
  std::vector<Block> blocks;  ///< Two for each rank.
};

/// A share of a call's pieces: every `of`-th piece, beginning with piece `number`, over channels of
/// its own. Stripes therefore have no byte, no message and no order in common.
struct Stripe {
  std::uint64_t number = 0;
  std::uint64_t of = 1;

  bool operator==(const Stripe&) const = default;
};
/// The distance between the channel numbers of one stripe and those of the next.
inline constexpr int kStripeChannels = 1 << 12;
inline constexpr int kMostStripes = 8;

/// Holds what describes a program as a whole. All pieces except the last have the same shape, so in
/// an array of two numbers, [0] is for a full piece and [1] for the last one.
struct ProgramHead {
  CallSignature call;
  /// Lengths come with each call in a BlockTable, and a step knows the positions of its blocks in
  /// the table. `pieces` and all numbers of bytes have no meaning, except those of scratch and of a
  /// full piece.
  bool variable = false;
  bool zero_copy = false;  ///< Whether some messages may be sent zero-copy.
  std::uint32_t fingerprint = 0;
  std::uint64_t pieces = 1;
  Stripe stripe;
  std::uint64_t piece_bytes = 0;  ///< The distance between two pieces in input and output.
  /// Messages are 2^widening times as long as their contents are in the buffers.
  int widening = 0;
  // The distance between two segments: in the call's buffers, in messages (where segments are
  // packed, so that it is the length of a segment), and in scratch, where each chunk has a place of
  // its own which is the same for all pieces, so that an order of chunks is an order of bytes.
  std::array<std::uint64_t, 2> segment_stride{};
  std::array<std::uint64_t, 2> chunk_bytes{};
  std::uint64_t scratch_stride = 0;
  std::uint64_t scratch_bytes = 0;
  std::uint64_t widest_step = 0;  ///< The largest number of operands of a step.

  bool operator==(const ProgramHead&) const = default;
};

/// Immutable after compile(). Offsets are bytes from the start of the operand's buffer.
struct Program : ProgramHead {
  static constexpr std::uint32_t kNone = 0xffff'ffff;
  struct Operand {
    Place place;
    bool zero_copy_in_place = false;  ///< It may be sent zero-copy in place, too.
    bool comes_back = false;  ///< Its answer may be written directly to the output, at `offset`.
    /// If the place is a peer: the index in `receives` (for an input) or `sends` (for an output).
    std::uint32_t port;
    /// For a message and its answer: the number of the other one in the step.
    std::uint32_t partner = kNone;
    /// For a message that may be sent zero-copy: the operand in whose memory it lies.
    std::uint32_t source = kNone;
    /// For input and output in a variable program: the number of the block in the table.
    std::array<std::uint64_t, 2> offset;

    bool operator==(const Operand&) const = default;
  };

  /// How a step makes its result from its inputs.
  enum class Fold : std::uint8_t {
    copy,         ///< There is one input, which is copied.
    reduce,       ///< `op` is applied to the inputs from the first to the last.
    fixed_point,  ///< All summands of the call are added in fixed point, in any order.
    user,         ///< Like `reduce`, with a function that comes with the call.
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
    std::uint32_t first_operand;  ///< The inputs of the step, then its outputs.
    std::uint32_t inputs;
    std::uint32_t outputs;
    std::uint32_t receives;  ///< The number of inputs that are messages.
    std::uint32_t posts;     ///< The number of outputs that are messages.
    /// The number of chunks if they are not consecutive everywhere; mostly 1, and 0 if it has none.
    std::uint32_t segments;
    std::uint32_t divide_by;    ///< The divisor of the result in a completing step of avg, else 1.
    std::uint32_t first_block;  ///< The position in the table, in a variable program.
    /// The bytes of the whole slice, which is the length of a message.
    std::array<std::uint64_t, 2> bytes;
    std::uint64_t results;  ///< Bit k is set if output k is a result of the call.
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
  std::vector<Masks> masks;  ///< Indexed by step. Empty if no operand is marked.
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
static_assert(sizeof(Program::Operand) == 32 && sizeof(Program::Step) == 72);
static_assert(sizeof(Program::Kernel) == 4 && sizeof(Program::Lane) == 8);

/// Describes how a call's data is cut into pieces and chunks, which follows from numbers that all
/// ranks know.
struct Cut {
  std::uint64_t pieces;
  std::uint64_t
      /// Layout::whole: elements of a full piece. Layout::blocks: elements of a block's share of
      /// it.
      piece_elements;
  /// Elements of a chunk in a full and in the last piece, not counting that the end of the data may
  /// cut the last chunk.
  std::array<std::uint64_t, 2> chunk_elements;
  std::uint64_t last_elements;  ///< Like piece_elements, for the last piece.
};

/// Returns the bytes of the smallest chunk in a message. Chunks are whole cache lines, except that
/// chunks of elements whose size does not divide a cache line are not aligned.
std::size_t least_chunk_bytes(std::size_t element_bytes);

/// Computes the cut of a call. `count` is the elements of the vector (Layout::whole) or of one
/// block (Layout::blocks). Messages have at most `message_bytes`, which must be at least
/// least_chunk_bytes() * widest.
Cut cut(Layout layout, std::uint64_t count, std::size_t element_bytes, int chunks, int widest,
        std::size_t message_bytes);

/// Compiles one rank's schedule for one call or, if `call` says that lengths differ, for all calls
/// that differ in `count` and `lengths` alone. `zero_copy` says whether messages may be sent
/// zero-copy. Throws `unavailable` if messages are too small for the schedule's widest step.
Program compile(const Schedule& schedule, const CallSignature& call, std::size_t message_bytes,
                bool zero_copy = false, Stripe stripe = {});

/// The largest number of inputs, and of outputs, of a step in a premultiplied sum or with
/// accumulate = f32.
inline constexpr std::size_t kMaxMarkedOperands = 64;

/// Holds the properties of all ranks' schedules which decide whether they can serve a call of a
/// rare kind.
struct ScheduleProperties {
  int widest = 1;
  int channels = 1;               ///< All channel numbers are below this number.
  std::size_t most_operands = 0;  ///< The largest number of inputs or of outputs of a step.
  /// Some chunk of an output is written more than once, so that it holds a partial result for a
  /// while. With accumulate = f32 the partial result would be rounded, and not on all ranks alike.
  bool rewrites_output = false;
  /// Each step that reduces or completes has all summands as its inputs.
  bool reduces_at_once = true;
};
ScheduleProperties properties_of(std::span<const Schedule> schedules);

/// Returns the bytes of an element in messages and scratch.
std::size_t moved_bytes(const CallSignature& call);

}  // namespace tutti
