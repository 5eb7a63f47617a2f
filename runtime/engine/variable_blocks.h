// The calls whose blocks have lengths of their own: all_gatherv, reduce_scatterv, gatherv,
// scatterv, all_to_allv.
#pragma once

#include <cstddef>

#include "collectives/schedule/program.h"
#include "runtime/call.h"

namespace tutti {

/// Whether a block's length is known to its two ends alone.
constexpr bool only_pairs_know(Collective what) {
  return what == Collective::gather || what == Collective::scatter ||
         what == Collective::all_to_all;
}

/// The longest block where all ranks know it, else 0.
std::size_t longest_known(Collective what, const VariableBlocks& blocks);

/// Checks the buffers, counts and displacements of a variable call, and writes them down for the
/// engine; `like` is the signature of its program. Returns the bytes of the output. Throws `usage`
/// naming the argument. Allocates only where `table` has never been as large, and
/// where blocks do not lie in the order of ranks.
std::size_t lay_out(const Call& call, int rank, int size, const CallSignature& like,
                    BlockTable& table);

}  // namespace tutti
