// The meaning of each collective in terms of buffers and chunks. Builders, the verifier and the
// printer share these facts.
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

/// Returns whether the collective reduces values; the others only move them.
constexpr bool reduces(Collective what) {
  return what == Collective::all_reduce || what == Collective::reduce ||
         what == Collective::reduce_scatter;
}

constexpr bool has_root(Collective what) {
  return what == Collective::broadcast || what == Collective::reduce ||
         what == Collective::gather || what == Collective::scatter;
}

/// The most ranks whose pairs can be numbered.
inline constexpr int kMostPairedRanks = 46'340;

/// Returns the number of chunks of a call in the blocks layout. Throws `unavailable` for an
/// all_to_all of more than kMostPairedRanks.
int block_count(Collective what, int ranks);

/// Returns the number of all_to_all's chunk from `source` to `destination`.
constexpr int pair_chunk(int source, int destination, int ranks) {
  return source * ranks + destination;
}
static_assert(pair_chunk(2, 1, 4) / 4 == 2 && pair_chunk(2, 1, 4) % 4 == 1);

/// A call from the point of view of rank `rank`.
struct RankCall {
  Collective what;
  int rank;
  int ranks;
  int root;
};
constexpr RankCall rank_call_of(const Schedule& schedule) {
  return {schedule.what, schedule.rank, schedule.ranks, schedule.root};
}

/// Returns whether the input buffer of this rank has chunk `chunk`.
constexpr bool input_exists(const RankCall& call, int chunk) {
  switch (call.what) {
    case Collective::all_gather:
    case Collective::gather: return chunk == call.rank;
    case Collective::broadcast:
    case Collective::scatter: return call.rank == call.root;
    case Collective::all_to_all: return chunk / call.ranks == call.rank;
    default: return true;
  }
}

/// Returns whether the output buffer of this rank has chunk `chunk`.
constexpr bool output_exists(const RankCall& call, int chunk) {
  switch (call.what) {
    case Collective::reduce_scatter:
    case Collective::scatter: return chunk == call.rank;
    case Collective::reduce:
    case Collective::gather: return call.rank == call.root;
    case Collective::all_to_all: return chunk % call.ranks == call.rank;
    default: return true;
  }
}
static_assert(input_exists({Collective::all_to_all, 2, 4, 0}, pair_chunk(2, 1, 4)) &&
              output_exists({Collective::all_to_all, 1, 4, 0}, pair_chunk(2, 1, 4)));

/// Returns whether this rank knows the length of chunk `chunk`, where lengths differ. In gather,
/// scatter and all_to_all only the two ends of a block know its length; so a root knows all
/// lengths.
constexpr bool length_known(const RankCall& call, int chunk) {
  if (call.what == Collective::all_gather || call.what == Collective::reduce_scatter) return true;
  return input_exists(call, chunk) || output_exists(call, chunk);
}

/// Returns whether the buffer holds only this rank's own block.
constexpr bool holds_one_block(Collective what, Place place) {
  return place == Place::input ? what == Collective::all_gather || what == Collective::gather
                               : what == Collective::reduce_scatter || what == Collective::scatter;
}

/// Returns the k-th of the chunks that a step moves, or kAnyChunk.
constexpr int chunk_of(const Step& step, int k) {
  return step.chunk == kAnyChunk ? kAnyChunk : step.chunk + k;
}

/// Returns the position of a chunk in a buffer that holds all chunks which the call gives it. In
/// place, the chunks at one position of input and output are the same memory.
constexpr int position(Collective what, int ranks, const Operand& operand) {
  if (what != Collective::all_to_all || operand.place == Place::scratch) return operand.index;
  return operand.place == Place::input ? operand.index % ranks : operand.index / ranks;
}
static_assert(position(Collective::all_to_all, 4, {Place::input, pair_chunk(2, 1, 4)}) == 1 &&
              position(Collective::all_to_all, 4, {Place::output, pair_chunk(2, 1, 4)}) == 2);

/// Returns the number of positions of a buffer of `chunks` chunks.
constexpr int positions(Collective what, int ranks, int chunks) {
  return what == Collective::all_to_all ? ranks : chunks;
}

/// Returns the rank whose input the result holds at `chunk`, where nothing is reduced.
constexpr int source_of(const RankCall& call, int chunk) {
  switch (call.what) {
    case Collective::all_gather:
    case Collective::gather: return chunk;
    case Collective::all_to_all: return chunk / call.ranks;
    default: return call.root;
  }
}

}  // namespace tutti::collectives
