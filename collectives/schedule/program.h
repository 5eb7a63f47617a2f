// A schedule compiled for one call: flat records that the engine (and later a CUDA kernel) walks
// without planning.
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
#include "compute/combine.h"

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

/// Immutable after compile(). Offsets are bytes from the start of the operand's buffer; all pieces
/// but the last are of one shape, so each record holds two: [0] for a full piece, [1] for the last.
struct Program {
  static constexpr std::uint16_t kNone = 0xffff;
  struct Operand {
    Place place;
    std::uint16_t port;  ///< Peer: index in `receives` (as an input) or `sends` (as an output).
    std::uint16_t partner = kNone;  ///< A message and its answer: the other's number in the step.
    std::uint16_t lender = kNone;   ///< A message that may be lent: the operand that holds it.
    bool lent_in_place = false;     ///< In calls in place, too.
    bool comes_back = false;        ///< Its answer may be put into the output, at `offset`.
    std::array<std::uint64_t, 2>
        offset;  ///< In a variable program's input and output: the block's number in the table.
  };
  struct Step {
    std::uint32_t first_operand;  ///< Inputs, then outputs.
    std::uint16_t inputs;
    std::uint16_t outputs;
    std::uint16_t receives;   ///< Of the inputs: messages.
    std::uint16_t posts;      ///< Of the outputs: messages.
    std::uint32_t segments;   ///< Chunks, where they do not lie side by side everywhere; mostly 1.
    std::uint32_t divide_by;  ///< Post-operation of a completing step (avg), else 1.
    std::uint32_t first_block;           ///< Of a variable program: in the table.
    std::array<std::uint64_t, 2> bytes;  ///< Of the whole slice; a message's length.
    std::uint64_t results;               ///< Outputs that are the call's result, as bits.
    CombineFunction combine;
    bool copies;        ///< `combine` copies.
    int element_shift;  ///< `combine` counts in 2^this bytes.
    After after;
  };
  struct Lane {
    std::uint32_t first_step;
    std::uint32_t steps;
  };
  struct Port {
    int peer;
    int channel;
  };
  static_assert(std::is_trivially_copyable_v<Operand> && std::is_trivially_copyable_v<Step>);

  CallSignature call;
  /// Lengths come with each call, in a BlockTable: of a step are known where its blocks stand in
  /// the table. `pieces` and all bytes but those of scratch and of a full piece mean nothing.
  bool variable = false;
  bool lends = false;  ///< Some messages may be lent.
  std::uint32_t fingerprint = 0;
  std::vector<Lane> lanes;
  std::vector<Step> steps;
  std::vector<Operand> operands;
  /// By step: the masks of a premultiplied sum and of accumulate = f32. Empty where the call needs
  /// no extras.
  std::vector<CombineExtras> extras;
  std::vector<Port> receives;
  std::vector<Port> sends;
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
  std::size_t widest_step = 0;  ///< The most operands of a step.
};

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

/// What the function of a program's own reduction threw, in words.
struct ReductionThrew {
  std::string what;
};

}  // namespace tutti
