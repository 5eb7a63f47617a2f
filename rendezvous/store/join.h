// Joins a rank to its job's store.
#pragma once

#include <tutti/store.hpp>

#include "common/log.h"
#include "rendezvous/launch/job_address.h"
#include "rendezvous/store/route.h"

namespace tutti::rendezvous {

/// Joins as `rank`. It tries again until the deadline while the server cannot be reached, and
/// writes the reason to `log` if that takes more than a few seconds. Throws `timeout`; `mismatch`
/// if the server is that of another job, or if another process has already joined as this rank; and
/// what the route throws.
Joined join_store(Route& route, const JobAddress& job, int rank, Store::Deadline deadline,
                  Log& log);

}  // namespace tutti::rendezvous
