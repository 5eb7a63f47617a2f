// Splits: communicators of some of a communicator's ranks, which use its connections and need no
// new start-up.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/call.h"
#include "runtime/communicator_parts.h"

namespace tutti {

/// What each rank sends to all others of the communicator that is split.
struct SplitCard {
  /// Says which call it is, and the arguments that must be equal on all ranks.
  std::uint64_t form = 0;
  std::int32_t color = 0;  ///< If it is less than 0, the rank is in none of the new communicators.
  std::int32_t key = 0;
  /// The ring size for which this rank has room; 0 stands for the size that follows from the number
  /// of ranks.
  std::uint64_t ring_bytes = 0;
  std::uint32_t number = 0;  ///< See Subset::numbers; 0 when all numbers are used up.
  std::uint32_t zero = 0;
};

SplitCard split_card(int color, int key);  ///< Throws `usage` for a wrong color.
SplitCard dup_card();
/// Throws `usage` for a list that names a rank twice, or a rank that is not below `size`.
SplitCard subgroup_card(std::span<const int> ranks, int rank, int size);

/// One rank's part in a split. Its functions are called in the order in which they are declared.
/// Only connect() waits.
class Splitting {
 public:
  /// `whole` outlives this object.
  Splitting(const CommunicatorParts& whole, const SplitCard& card);

  /// Returns the call by which the ranks of `whole` exchange their cards. This object outlives the
  /// call.
  Call exchange();
  /// After that call: returns the parts of the new communicator, which connect() still has to
  /// connect, or none if this rank is in no new communicator. Throws `mismatch` if the ranks made
  /// different calls.
  std::optional<CommunicatorParts> join() const;
  /// Returns when all members have called join().
  static void connect(CommunicatorParts& part);

 private:
  const CommunicatorParts& whole_;
  SplitCard card_;
  std::vector<SplitCard> cards_;  // indexed by rank
};

}  // namespace tutti
