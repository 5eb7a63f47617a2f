// A rank's way to the server of its job's store.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <unistd.h>

#include <tutti/store.hpp>

#include "common/address.h"
#include "common/fd.h"
#include "common/random.h"
#include "common/secret.h"
#include "net/connection.h"
#include "rendezvous/launch/job_address.h"

namespace tutti::rendezvous {

/// A connection to a server that has shown itself to be this job's.
struct Joined {
  net::Connection connection;
  std::string server;  ///< "process 4711", "10.0.0.1:29500".
  Fd server_end;  ///< Readable once the server's process has ended; none where nobody can tell.
};

class Route {
 public:
  virtual ~Route() = default;

  /// None: `obstacle` says why, and it may be gone the next time. Throws for what will not get
  /// better: `unavailable` for a server that is not this user's or not tutti's, `mismatch` for one
  /// of another job.
  virtual std::optional<Joined> reach(Store::Deadline deadline, std::string& obstacle) = 0;

  virtual std::string place() const = 0;   ///< "MASTER_PORT 29500", "node7:29500".
  virtual std::string advice() const = 0;  ///< What to look at where nobody was reached.
  virtual std::chrono::milliseconds longest_pause() const = 0;  ///< Between two attempts.
};

/// By the Unix socket of `job` on this machine; `server_uid`: whose server it must be.
std::unique_ptr<Route> local_route(JobAddress job, int rank, uid_t server_uid = geteuid());

/// By TCP, to the first of `places` at which a server of this job is: with several, they are rank
/// 0's guesses of how others reach it, and a stranger there is passed over. `tls`: what follows the
/// proof is encrypted.
std::unique_ptr<Route> tcp_route(JobAddress job, int rank, std::vector<SocketAddress> places,
                                 Secret secret, Random& random, bool tls = false);

}  // namespace tutti::rendezvous
