// Makes the communicator of a shrink over the connections that its members have.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/communicator_parts.h"
#include "runtime/membership/round.h"

namespace tutti {

/// Makes the communicator of `members`, all of which are ranks of `whole`, as one that is split off
/// `whole`. Each member calls it; `unusable` says, by rank of `whole`, to whom this member has no
/// connection that can be used, and the check of `store` brings it up to date. Returns none on all
/// members where any says so: then they connect anew. The members join by `deadline`, over `store`.
/// Throws what the store throws, `timeout` where a member does not come, `peer_lost` where a
/// connection turns out to be of no use, and std::bad_alloc.
std::optional<CommunicatorParts> join_over_kept_connections(const CommunicatorParts& whole,
                                                            const Regrouped& members,
                                                            const std::vector<bool>& unusable,
                                                            WatchedStore& store,
                                                            TimePoint deadline);

}  // namespace tutti
