// A decision on which the ranks of a job agree over their store, although any of them may end at
// any point.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tutti/store.hpp>

namespace tutti {

/// One rank's part in one decision: a value that some rank proposed, the same for all, for ever.
/// Needs of the store only what every Store has, and each of its requests counts or does not as a
/// whole. A rank that ends, or whose request fails, between two requests of propose() leaves the
/// decision to the others. One thread at a time may use it; it never waits for another rank.
///
/// It is Paxos over shared registers (Gafni and Lamport, "Disk Paxos", 2003, with one disk), in
/// which an atomic counter gives out the ballots. A ballot takes over the value of the highest
/// earlier ballot that wrote one, writes its value, and decides it if no later ballot has begun.
/// A ballot that begins later therefore finds the value written, and all later ones have it, too.
class Decision {
 public:
  /// `place` is a prefix of keys in `store`, which outlives this object, that nothing else uses.
  Decision(Store& store, std::string place) : store_(store), place_(std::move(place)) {}

  /// Returns the value, or none while it is not known that there is one. Throws what the store
  /// throws.
  std::optional<std::string> look(Store::Deadline deadline);

  /// Has the decision made: for `value`, unless another one may have been decided already. Returns
  /// what has been decided, or none if other ranks are at it; call again a little later then. If
  /// they have ended meanwhile, this rank goes on in their place. Throws what the store throws.
  std::optional<std::string> propose(std::string_view value, Store::Deadline deadline);

 private:
  std::string key(std::string_view what) const;
  std::string key(std::string_view what, std::int64_t ballot) const;
  std::optional<std::string> written_before(std::int64_t ballot, Store::Deadline deadline);

  Store& store_;
  const std::string place_;
  std::int64_t seen_ = 0;  // the last ballot that this rank knew of
  std::optional<std::string> decided_;
};

}  // namespace tutti
