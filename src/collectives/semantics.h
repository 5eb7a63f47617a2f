// What each collective means in terms of buffers and chunks: the facts that builders, the verifier
// and the printer share.
#pragma once

#include <tutti/schedule.hpp>

namespace tutti::collectives {

constexpr Layout layout_of(Collective what) {
  return what == Collective::all_gather || what == Collective::reduce_scatter ? Layout::blocks
                                                                              : Layout::whole;
}

/// Whether values are combined; the others only move them.
constexpr bool reduces(Collective what) {
  return what == Collective::all_reduce || what == Collective::reduce ||
         what == Collective::reduce_scatter;
}

constexpr bool has_root(Collective what) {
  return what == Collective::broadcast || what == Collective::reduce;
}

/// Whether rank `rank` has chunk `chunk` in its input buffer.
constexpr bool input_exists(Collective what, int rank, int root, int chunk) {
  if (what == Collective::all_gather) return chunk == rank;
  return what != Collective::broadcast || rank == root;
}

/// Whether rank `rank` has chunk `chunk` in its output buffer.
constexpr bool output_exists(Collective what, int rank, int root, int chunk) {
  if (what == Collective::reduce_scatter) return chunk == rank;
  return what != Collective::reduce || rank == root;
}

}  // namespace tutti::collectives
