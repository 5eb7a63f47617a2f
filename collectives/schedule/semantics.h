// What each collective means in terms of buffers and chunks: the facts that builders, the verifier
// and the printer share.
#pragma once

#include <tutti/schedule.hpp>

namespace tutti::collectives {

constexpr Layout layout_of(Collective what) {
  switch (what) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all: return Layout::blocks;
    default: return Layout::whole;
  }
}

/// Whether values are combined; the others only move them.
constexpr bool reduces(Collective what) {
  return what == Collective::all_reduce || what == Collective::reduce ||
         what == Collective::reduce_scatter;
}

constexpr bool has_root(Collective what) {
  return what == Collective::broadcast || what == Collective::reduce ||
         what == Collective::gather || what == Collective::scatter;
}

/// Chunks of a call in the blocks layout.
constexpr int block_count(Collective what, int ranks) {
  return what == Collective::all_to_all ? ranks * ranks : ranks;
}

/// all_to_all's chunk from `source` to `destination`.
constexpr int pair_chunk(int source, int destination, int ranks) {
  return source * ranks + destination;
}

/// The call as rank `rank` sees it.
struct Seat {
  Collective what;
  int rank;
  int ranks;
  int root;
};
constexpr Seat seat_of(const Schedule& schedule) {
  return {schedule.what, schedule.rank, schedule.ranks, schedule.root};
}

/// Whether the input buffer has chunk `chunk`.
constexpr bool input_exists(const Seat& seat, int chunk) {
  switch (seat.what) {
    case Collective::all_gather:
    case Collective::gather: return chunk == seat.rank;
    case Collective::broadcast:
    case Collective::scatter: return seat.rank == seat.root;
    case Collective::all_to_all: return chunk / seat.ranks == seat.rank;
    default: return true;
  }
}

/// Whether the output buffer has chunk `chunk`.
constexpr bool output_exists(const Seat& seat, int chunk) {
  switch (seat.what) {
    case Collective::reduce_scatter:
    case Collective::scatter: return chunk == seat.rank;
    case Collective::reduce:
    case Collective::gather: return seat.rank == seat.root;
    case Collective::all_to_all: return chunk % seat.ranks == seat.rank;
    default: return true;
  }
}

/// Whether this rank knows the length of chunk `chunk` where lengths differ. Of gather, scatter and
/// all_to_all, the two ends of a block alone do; the root knows all.
constexpr bool length_known(const Seat& seat, int chunk) {
  if (seat.what == Collective::all_gather || seat.what == Collective::reduce_scatter) return true;
  return input_exists(seat, chunk) || output_exists(seat, chunk);
}

/// Whether the buffer holds no block but this rank's own.
constexpr bool holds_one_block(Collective what, Place place) {
  return place == Place::input ? what == Collective::all_gather || what == Collective::gather
                               : what == Collective::reduce_scatter || what == Collective::scatter;
}

/// The k-th of the chunks that a step moves, or kAnyChunk.
constexpr int chunk_of(const Step& step, int k) {
  return step.chunk == kAnyChunk ? kAnyChunk : step.chunk + k;
}

/// Where chunk `chunk` stands among the chunks of a buffer that has all that the call gives it. In
/// place, what stands at one position of input and output is one.
constexpr int position(Collective what, int ranks, const Operand& operand) {
  if (what != Collective::all_to_all || operand.place == Place::scratch) return operand.index;
  return operand.place == Place::input ? operand.index % ranks : operand.index / ranks;
}

/// How many positions there are, of `chunks` chunks.
constexpr int positions(Collective what, int ranks, int chunks) {
  return what == Collective::all_to_all ? ranks : chunks;
}

/// Whose input a chunk is in the end, where nothing is reduced.
constexpr int source_of(const Seat& seat, int chunk) {
  switch (seat.what) {
    case Collective::all_gather:
    case Collective::gather: return chunk;
    case Collective::all_to_all: return chunk / seat.ranks;
    default: return seat.root;
  }
}

}  // namespace tutti::collectives
