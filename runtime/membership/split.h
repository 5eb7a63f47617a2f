// Communicators of some of a communicator's ranks: no new start-up, the same connections.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "runtime/communicator_impl.h"

namespace tutti {

/// What one rank says to all others of the communicator that is split.
struct SplitCard {
  std::uint64_t form = 0;  ///< Which call it is, with what must be equal on all ranks.
  std::int32_t color = 0;  ///< Less than 0: in none of the new communicators.
  std::int32_t key = 0;
  std::uint64_t ring_bytes = 0;  ///< That it has room for; 0: as the size says.
  std::uint32_t number = 0;      ///< As Subset::numbers; 0 when all are used up.
  std::uint32_t zero = 0;
};

SplitCard split_card(int color, int key);  ///< Throws `usage` for a wrong color.
SplitCard dup_card();
/// Throws `usage` for a list that names a rank twice, or none of `size`.
SplitCard subgroup_card(std::span<const int> ranks, int rank, int size);

/// The new communicator's parts, from the `cards` of all ranks of the old one; none: this rank is
/// in none. Throws `mismatch` where they called different things.
std::optional<CommunicatorParts> split(const CommunicatorParts& whole,
                                       std::span<const SplitCard> cards);

}  // namespace tutti
