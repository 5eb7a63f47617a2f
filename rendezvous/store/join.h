// How a rank gets into its job's store, once it has reached the server.
#pragma once

#include <tutti/store.hpp>

#include "common/log.h"
#include "rendezvous/launch/job_address.h"
#include "rendezvous/store/route.h"

namespace tutti::rendezvous {

/// Joins as `rank`, trying until the deadline while no server is there. Throws `timeout`;
/// `mismatch` for another job's server, and where a process has joined as this rank already; and
/// what the route throws. What keeps it waiting for seconds is told to `log`.
Joined join_store(Route& route, const JobAddress& job, int rank, Store::Deadline deadline,
                  Log& log);

}  // namespace tutti::rendezvous
