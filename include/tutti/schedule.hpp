// tutti: a collective as data. An algorithm is a pure function that returns each rank's Schedule;
// the engine, the verifier, the simulator and the printer read it.
#pragma once

#include <compare>
#include <vector>

#include <tutti/types.hpp>

namespace tutti {

/// Where an operand lives: a buffer of the call, the communicator's scratch memory, or a peer's
/// message.
enum class Place : std::uint8_t { input, output, scratch, peer };

/// One side of a step: chunks [index, index + Step::count) of a buffer, or one message from or to
/// rank `index`.
///
/// Blocks layout: chunk c is block c of the call. A buffer that holds only one block (all_gather's
/// input, reduce_scatter's output) holds block `rank` and no other.
struct Operand {
  Place place = Place::input;
  int index = 0;

  auto operator<=>(const Operand&) const = default;
};

/// A step of another lane of the same rank that must be done first: step `step` of lane `lane`, of
/// the same piece
/// (`pieces_back` 0) or of an earlier one. Pieces before the first need nothing. `lane` < 0: no
/// such step.
struct After {
  int lane = -1;
  int step = 0;
  int pieces_back = 0;

  auto operator<=>(const After&) const = default;
};

/// The one kind of step: combine what these hold, and hand the result to those.
struct Step {
  std::vector<Operand>
      in;  ///< One is copied; two or more are reduced in the order written, as a left fold.
  std::vector<Operand>
      out;        ///< All receive the result. A peer stands at most once in `in` and once in `out`.
  int chunk = 0;  ///< First of the chunks whose lengths this step moves (scratch has no lengths of
                  ///< its own).
  int count = 1;  ///< Chunks; equal for all operands.
  bool completes = false;  ///< The result is final here: post-operations (avg's division) apply.
  After after;             ///< Orders this step after one of another lane.

  bool operator==(const Step&) const = default;
};

/// Steps done in order. Lanes run side by side; a channel's end (peer, channel number, direction)
/// belongs to one lane.
struct Lane {
  int receives_on = 0;  ///< Channel number of every peer in `in`.
  int sends_on = 0;     ///< Channel number of every peer in `out`.
  std::vector<Step> steps;

  bool operator==(const Lane&) const = default;
};

/// How a buffer is cut. Lengths come from the call, not from the schedule.
enum class Layout : std::uint8_t {
  whole,   ///< The vector is cut into pieces, each piece into `chunks` chunks aligned to 64 B
           ///< (all_reduce, broadcast, reduce).
  blocks,  ///< Chunks are the call's blocks, one a rank; each is cut into pieces (all_gather,
           ///< reduce_scatter).
};

/// One rank's part of a collective. Every lane walks the pieces in order: all its steps of piece 0,
/// then of piece 1.
struct Schedule {
  Collective what = Collective::all_reduce;
  Layout layout = Layout::whole;
  int rank = 0;
  int ranks = 1;
  int root = 0;            ///< 0 where the collective has none.
  int chunks = 1;          ///< Chunks of a piece (whole) or blocks of the call (blocks).
  int scratch_chunks = 0;  ///< Scratch that the lanes of this rank use, in chunks.
  int widest = 1;  ///< The most chunks that any step of any rank moves: equal on all ranks, it
                   ///< decides the cut.
  std::vector<Lane> lanes;

  bool operator==(const Schedule&) const = default;
};

}  // namespace tutti
