// Communicators of some of a communicator's ranks: no new start-up, the same connections.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/call.h"
#include "runtime/communicator_parts.h"

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

/// One rank's part of a split, in the order of its functions. None of them waits but connect().
class Splitting {
 public:
  /// `whole` outlives it.
  Splitting(const CommunicatorParts& whole, const SplitCard& card);

  /// The call that tells each other what the ranks of `whole` want. This outlives it.
  Call exchange();
  /// After that call: the new communicator's parts, for all but connect(); none: this rank is in
  /// none. Throws `mismatch` where the ranks called different things.
  std::optional<CommunicatorParts> join() const;
  /// Returns when all members have made join().
  static void connect(CommunicatorParts& part);

 private:
  const CommunicatorParts& whole_;
  SplitCard card_;
  std::vector<SplitCard> cards_;  // by rank
};

}  // namespace tutti
