// How a rank gets into its job's store.
#pragma once

#include <unistd.h>

#include <tutti/store.hpp>

#include "rendezvous/connection.h"
#include "rendezvous/job_address.h"
#include "rendezvous/local_socket.h"

namespace tutti::rendezvous {

struct Joined {
  Connection connection;
  PeerProcess server;
};

/// Joins as `rank`, trying until the deadline while no server is there. `server_uid`: whose server
/// it must be. Throws `timeout`; `mismatch` for another job's server, and where a process has
/// joined as this rank already; `unavailable` for a server that is not this user's, or not tutti's.
Joined join_store(const JobAddress& job, int rank, Store::Deadline deadline,
                  uid_t server_uid = geteuid());

}  // namespace tutti::rendezvous
