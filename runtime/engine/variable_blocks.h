// The checks and tables of variable calls, whose blocks have different lengths: all_gatherv,
// reduce_scatterv, gatherv, scatterv, all_to_allv.
#pragma once

#include <cstddef>

#include "collectives/schedule/program.h"
#include "runtime/call.h"

namespace tutti {

/// Returns whether only the two ends of a block know its length.
constexpr bool only_pairs_know(Collective what) {
  return what == Collective::gather || what == Collective::scatter ||
         what == Collective::all_to_all;
}

/// Returns the length of the longest block if all ranks know it, else 0.
std::size_t longest_known(Collective what, const VariableBlocks& blocks);

/// Checks the buffers, counts and displacements of a variable call, and stores them in `table` for
/// the engine; `like` is the signature of its program. Returns the bytes of the output. Throws
/// `usage` with a message that names the argument. It allocates only if `table` has never been as
/// large, or if the blocks do not lie in the order of ranks.
std::size_t lay_out(const Call& call, int rank, int size, const CallSignature& like,
                    BlockTable& table);

}  // namespace tutti
