// The server of a job's store, which is one thread of rank 0, whatever the number of ranks.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/process_owned.h"
#include "common/secret.h"
#include "rendezvous/launch/job_address.h"

namespace tutti {

/// The limits on clients and on times.
struct ServerLimits {
  uid_t uid = geteuid();  ///< The user whose processes may join.
  /// The time after which a connection that has sent no greeting is closed.
  std::chrono::milliseconds greeting{5'000};
  std::chrono::milliseconds linger{5'000};  ///< See ~StoreServer().
  bool once = false;                 ///< The server ends when all that have joined have left.
  bool only_newcomers = false;       ///< There are no ranks for which the server waits.
  std::size_t unauthenticated = 64;  ///< The number of connections without a greeting, beyond one
                                     ///< for each rank. If there are more, the oldest is closed.
  std::size_t unsent = 4 << 20;  ///< The server takes no request from a member for which more bytes
                                 ///< of replies than this wait.
};

/// A socket at which a store's server accepts ranks.
struct Listener {
  Fd socket;
  /// The secret that a client must know; it is empty if the network is trusted. Not set for a Unix
  /// socket, at which the kernel identifies the client.
  std::optional<Secret> secret;
  bool tls = false;  ///< Connections are encrypted after the authentication.
};

/// Listens at the Unix socket of `job`. Throws `unavailable` if the name is in use, naming the
/// process that has it if that is known, and `usage` if it is this process.
Listener unix_listener(const JobAddress& job);

/// Serves a store in a thread that nobody waits for, for as long as this process exists, or with
/// ServerLimits::once until all processes that have joined have left. The arguments and errors are
/// those of StoreServer.
void serve_detached(const JobAddress& job, std::vector<Listener> listeners,
                    const ServerLimits& limits, std::string address);

/// Serves the store from construction to destruction. It writes no log: a rank that is refused gets
/// the reason and reports it itself.
class StoreServer {
 public:
  /// `address` is that of this server, see rendezvous::Way; if it is empty, no server stands by.
  /// Throws `unavailable` if sockets or threads cannot be created.
  StoreServer(const JobAddress& job, std::vector<Listener> listeners,
              const ServerLimits& limits = {}, std::string address = {});

  /// Waits, at most ServerLimits::linger, until the ranks that have joined have left, so that a
  /// rank 0 that finishes early does not cut off ranks that are still reading. In a forked child it
  /// does nothing, since the server belongs to the parent.
  ~StoreServer();

 private:
  class Running;
  ProcessOwned<Running> running_;
};

}  // namespace tutti
