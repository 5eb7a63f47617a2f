// Splits: communicators of some of a communicator's ranks, which use its connections and need no
// new start-up.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <tutti/error.hpp>

#include "runtime/call.h"
#include "runtime/communicator_parts.h"

namespace tutti {

/// The record that each rank sends to all others of the communicator that is split.
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
static_assert(sizeof(SplitCard) == 32 && std::has_unique_object_representations_v<SplitCard>,
              "ranks exchange it byte by byte");

SplitCard split_card(int color, int key);  ///< Throws `usage` for a wrong color.
SplitCard dup_card();
/// Returns the card of a rank that goes on, in a communicator of those that are left.
SplitCard survivor_card();
/// Throws `usage` for a list that names a rank twice, or a rank that is not below `size`.
SplitCard subgroup_card(std::span<const int> ranks, int rank, int size);

/// One rank's part in a split: a state machine, which never waits. Its functions are called in the
/// order in which they are declared.
class Splitting {
 public:
  /// `whole` outlives this object.
  Splitting(const CommunicatorParts& whole, const SplitCard& card);

  /// Returns the call by which the ranks of `whole` exchange their cards. This object outlives the
  /// call.
  Call exchange();
  /// Return this rank's card, and take the one that another rank of `whole` has told it. They stand
  /// in for that call where the ranks exchange their cards by other means.
  const SplitCard& card() const noexcept { return card_; }
  void take(int rank, const SplitCard& card) { cards_[static_cast<std::size_t>(rank)] = card; }
  /// Once the cards are there: compares them. Returns false if this rank is in no new communicator.
  /// Throws `mismatch` if the ranks made different calls. All members of a new communicator come to
  /// the same result.
  bool compare();
  /// Returns the members, once they are compared, for a caller that makes the communicator itself.
  const Subset& subset() const noexcept { return subset_; }
  /// Makes this rank's part of the new communicator, in which it has until `deadline` to join the
  /// other members. If this, joined() or look() throws, the other members wait until they see that
  /// the communicator that is split has failed.
  void make(TimePoint deadline);
  /// Returns whether all members have made their parts.
  bool joined();
  /// Does what can be done until they have. Throws if the communicator that is split has failed on
  /// a rank, if a member that is missing has ended, and after the deadline. `owns_engine` says
  /// whether the caller owns the engine of that communicator; its peers are looked at only then.
  void look(TimePoint now, bool owns_engine);
  /// After an error of make(), joined() or look(): tells the members that `error` is why this rank
  /// does not come, since some may have joined it, and call the new communicator already. Returns
  /// `error`.
  const Error& give_up(const Error& error) noexcept;
  /// Returns the parts of the new communicator, once joined() has returned true.
  CommunicatorParts take_parts(TimePoint now);

 private:
  std::optional<Error> why_hopeless() const;
  std::string heading() const;
  bool is_missing(int rank) const;

  const CommunicatorParts& whole_;
  SplitCard card_;
  std::vector<SplitCard> cards_;  // indexed by rank
  Subset subset_;
  std::uint64_t ring_bytes_ = 0;
  std::optional<CommunicatorParts> parts_;
  TimePoint made_{}, deadline_{};
  std::vector<int> missing_;  // ranks of the new communicator
};

}  // namespace tutti
