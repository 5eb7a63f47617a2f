// How a rank connects to the server of its job's store.
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
#include "common/patience.h"
#include "common/random.h"
#include "common/secret.h"
#include "net/connection.h"
#include "rendezvous/launch/job_address.h"

namespace tutti::rendezvous {

/// A connection to a server that has been authenticated.
struct Joined {
  net::Connection connection;
  std::string server;  ///< Names the server, as "process 4711" or "10.0.0.1:29500".
  Fd server_end;  ///< Readable once the server's process has ended; empty if that is not detected.
  int size = 0;   ///< The job's number of ranks, as the server has said once it lets this one in.
};

/// A way to connect to the server.
class Route {
 public:
  virtual ~Route() = default;

  /// Connects to the server. Returns none if another attempt may succeed, with the reason in
  /// `obstacle`. Throws if no attempt can: `unavailable` if the server belongs to another user or
  /// is not tutti's, `mismatch` if it belongs to another job.
  virtual std::optional<Joined> reach(const Patience& patience, std::string& obstacle) = 0;

  virtual std::string place() const = 0;   ///< For messages: "MASTER_PORT 29500", "node7:29500".
  virtual std::string advice() const = 0;  ///< What the user should check if no server was reached.
  virtual std::chrono::milliseconds longest_pause() const = 0;  ///< The most between two attempts.
};

/// Connects to the Unix socket of `job` on this machine. The server must belong to `server_uid`.
std::unique_ptr<Route> local_route(JobAddress job, int rank, uid_t server_uid = geteuid());

/// Connects by TCP to the first of `places` at which this job's server listens. Several places are
/// all addresses at which rank 0 might be reached; other servers found there are skipped. `tls`
/// says that the connection is encrypted after the authentication.
std::unique_ptr<Route> tcp_route(JobAddress job, int rank, std::vector<SocketAddress> places,
                                 Secret secret, Random& random, bool tls = false);

}  // namespace tutti::rendezvous
