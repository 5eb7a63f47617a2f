// Makes the communicator of a shrink or grow over the connections that its members have.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/communicator_parts.h"
#include "runtime/membership/connect.h"
#include "runtime/membership/round.h"

namespace tutti {

/// Makes the communicator of `members` over the connections that those of them have which are ranks
/// of `whole`: as one that is split off `whole`, or one that grows, if there are newcomers. Each
/// member that is a rank of `whole` calls it; `unusable` says, by rank of `whole`, to whom this
/// member has no connection that can be used, and the check of `store` brings it up to date.
/// Returns none on all of them where any says so: then they connect anew. The members join by
/// `deadline`, over `store`. Throws what the store throws, `timeout` where a member does not come,
/// `peer_lost` where a connection turns out to be of no use, what join_regrouped() throws, and
/// std::bad_alloc.
std::optional<CommunicatorParts> join_over_kept_connections(
    const CommunicatorParts& whole, const Regrouped& members, const std::vector<bool>& unusable,
    const std::shared_ptr<WatchedStore>& store, TimePoint deadline);

/// One rank's part in the growing of a communicator over the connections that its ranks have, which
/// has a transport beside these for the newcomers. Its functions are called in the order in which
/// they are declared. One thread uses it.
class Keeping {
 public:
  /// `subset` has the ranks of `whole`, which go on. `throw_if_vain` throws where waiting for them
  /// is in vain, and outlives this object, as `whole` does. Throws `unavailable` where there is no
  /// shared memory for a status page that peers over all transports can see.
  Keeping(const CommunicatorParts& whole, Subset subset, int newcomers,
          std::function<void()> throw_if_vain);

  /// Has `parts` use the doorbell of these connections, and tell apart its splits from others'.
  void lend_endpoint(CommunicatorParts& parts) const;
  /// Says in the context of other transports that they connect to newcomers alone.
  void restrict(TransportContext& context) const;
  /// Returns what the connections can do, as text for limit_to_kept().
  std::string abilities() const;
  /// Joins the other ranks of `whole`, once `agreed` is the context that all ranks have. Throws
  /// `timeout` where one does not come by `deadline`.
  KeptConnections join(const TransportContext& agreed, TimePoint deadline);

 private:
  const CommunicatorParts& whole_;
  Subset subset_;
  const std::function<void()> throw_if_vain_;
  std::shared_ptr<OwnPage> page_;
};

/// Limits what `parts` say of all links to what those can that have been kept on any rank. `column`
/// has the abilities() of each rank, and an empty text for each that keeps none. Throws `corrupt`
/// for another text.
void limit_to_kept(CommunicatorParts& parts, const Texts& column);

}  // namespace tutti
