// These records are what the host and the kernels of the device engine say to each other. They are
// plain data with one layout for both compilers. The host includes it, and so does the code that
// nvcc compiles.
//
// One kernel executes one call. Block b of its grid walks lane b % lanes of stripe b / lanes. A
// launch is one start of that kernel. A block that waits for a peer longer than the launch's
// patience writes down how far it has come and ends; the host launches the kernel again as another
// attempt, which goes on from there. A kernel therefore never holds a multiprocessor for longer
// than that, whatever its peers do, and ranks that share a GPU cannot keep each other from running.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collectives/schedule/program.h"
#include "common/wire.h"

namespace tutti::device {

/// A line of a ring as a kernel sees it; transport/ring/ring_memory.h describes what it holds.
struct alignas(64) RingLine {
  std::uint64_t sequence;
  Header header;
  std::byte payload[40];
};
inline constexpr std::uint64_t kRingLines = 64;
static_assert(sizeof(RingLine) == 64);

/// Says where the ring of a channel is. It lies in pinned memory of the host, who writes it once it
/// is decided where the ring lies.
struct OfferedRing {
  /// It is 0 until the following are there, and is written with release order.
  std::uint64_t there;
  RingLine* lines;
  std::uint64_t* released;  ///< It is in the host's memory, wherever the rest is.
  std::byte* data;
  std::uint64_t data_bytes;
};

/// The sending end of a channel (transport/ring/ring_view.h says how a message is posted). It lies
/// in the GPU's memory, and the one block whose lane has the channel uses it, in one call after
/// another.
struct SendEnd {
  /// It is null until the end's block has copied the four addresses and numbers from `offered`.
  RingLine* lines;
  std::uint64_t* released;
  std::byte* data;
  std::uint64_t data_bytes;
  std::uint64_t next;              ///< The number of messages posted.
  std::uint64_t position;          ///< The payload bytes that these have taken up.
  std::uint64_t freed;             ///< How many of these, from the first on, are free again.
  std::uint64_t ends[kRingLines];  ///< `position` after message n, at n % kRingLines.
  const OfferedRing* offered;
  std::int32_t peer;
};

/// The receiving end of a channel.
struct RecvEnd {
  RingLine* lines;  ///< As SendEnd::lines.
  std::uint64_t* released;
  std::byte* data;
  std::uint64_t data_bytes;
  std::uint64_t next;      ///< The number of messages released.
  std::uint64_t position;  ///< The payload bytes that these have taken up.
  const OfferedRing* offered;
  std::int32_t peer;
};

/// How far a block has come. It lies in the GPU's memory. Its block alone writes it, and other
/// blocks of the launch read `progress`.
struct LaneState {
  std::uint64_t piece;
  std::uint64_t walked;  ///< The number of pieces that are done.
  std::uint32_t step;    ///< The index in the lane of the next step, or the lane's number of steps
                         ///< once all pieces are done.
  std::uint32_t padding;
  /// The number of the program's run in the upper 24 bits, and the number of steps done in it, over
  /// all pieces, in the lower 40. What an earlier run has left there is no progress of this one.
  std::uint64_t progress;
};
inline constexpr int kProgressBits = 40;

/// A program in the GPU's memory, for one stripe. All pointers are addresses of the GPU.
struct ProgramRecord {
  ProgramHead head;
  const Program::Lane* lanes;
  const Program::Step* steps;
  const Program::Operand* operands;
  const Program::Masks* masks;  ///< Indexed by step; null if no operand is marked.
  SendEnd* const* sends;        ///< By Program::Operand::port.
  RecvEnd* const* receives;
  LaneState* states;  ///< One for each lane.
};

/// Counts of the blocks of one engine's launches. They lie in the GPU's memory. Only one launch is
/// under way at a time, unless the engine has been stopped.
struct Counts {
  /// Blocks that have begun, and those of them that have ended. A block adds to `started`, then a
  /// sequentially consistent fence follows, then it reads Control::aborted: so the host, once it
  /// has set that word, finds the two equal when no block touches a buffer or a ring any more.
  std::uint64_t started;
  std::uint64_t ended;
  /// Blocks of this launch that have ended, and blocks of this call that have ended their lanes.
  /// The last block of a launch sets the first to 0 again, and the last one of a call both.
  std::uint32_t exits;
  std::uint32_t finished;
  std::uint32_t claimed;  ///< 0 until a block writes a mismatch.
};

/// The most blocks of a grid.
inline constexpr std::uint32_t kMostBlocks = 1024;

/// The words by which the kernels of one engine and the host talk. They lie in pinned memory of the
/// host. All are written with release order and read with acquire order at system scope.
struct Control {
  /// The host writes it: not 0 means that kernels end at once and touch no buffer and no ring.
  alignas(64) std::uint64_t aborted;
  // Kernels write the following, and the host `done` where it stops the engine.
  /// The number of the launch that has begun last; block 0 stores it.
  alignas(64) std::uint64_t entered;
  // The last block of a launch stores one of the following two, and then neither.
  /// The number of the last launch that has ended before its call was done.
  std::uint64_t exited;
  /// The ticket of the last call that is done. It is stored after all that the call has written.
  std::uint64_t done;
  /// The ticket of the call in which a message came that the call does not expect, or 0. It is
  /// stored after the following three, by the block that Counts::claimed lets do so.
  alignas(64) std::uint64_t mismatched;
  std::int32_t mismatched_peer;
  Header expected;
  Header found;
};
static_assert(sizeof(Control) == 192);

/// The argument of the kernel.
struct CallRecord {
  const ProgramRecord* stripes;
  std::uint32_t lanes;   ///< The lanes of each stripe.
  std::uint32_t blocks;  ///< The grid's: lanes times stripes.
  Control* control;
  Counts* counts;
  /// Points to one number for each block, in pinned memory of the host: the rank of the peer for
  /// which the block waited when its patience ended, or -1 if it waits for none.
  std::int32_t* awaited;
  const std::byte* input;
  std::byte* output;
  std::byte* scratch;  ///< Stripe s has its part at s * ProgramHead::scratch_bytes.
  /// For a variable program: BlockTable::blocks, where the GPU reads them; else null.
  const BlockTable::Block* table;
  std::uint64_t pieces;     ///< Of the call, over all stripes.
  std::uint64_t ticket;     ///< The number of the call in this engine, from 1 on.
  std::uint64_t run;        ///< The number of the program's run, from 1 on.
  std::uint64_t launch;     ///< The number of the launch in this engine, from 1 on.
  std::uint64_t launches;   ///< The number of launches of the program, with this one.
  std::uint32_t attempt;    ///< 0 for a call's first launch: lanes begin at their first step.
  std::uint32_t patience;   ///< How often a block looks for what it waits for before it ends.
  std::uint32_t operation;  ///< Header::operation of the call's messages.
  std::uint32_t
      fingerprint;  ///< Header::fingerprint, before the length of a pair's block is added.
  /// All ones if the length of a step's first block is added to the fingerprint; else 0.
  std::uint32_t pair_mask;
  alignas(16) std::byte premultiplier[16];  ///< One element, in a premultiplied sum.
};

static_assert(std::is_trivially_copyable_v<CallRecord> && std::is_standard_layout_v<Control> &&
              std::is_trivially_copyable_v<ProgramRecord>);
static_assert(sizeof(CallRecord) <= 4096, "the driver takes it as a kernel's argument");

}  // namespace tutti::device
