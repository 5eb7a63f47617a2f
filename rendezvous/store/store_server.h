// The server of a job's store: one thread of rank 0, whatever the number of ranks.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "common/fd.h"
#include "common/process_owned.h"
#include "common/secret.h"
#include "rendezvous/launch/job_address.h"

namespace tutti {

struct ServerLimits {
  uid_t uid = geteuid();                      ///< Who may join.
  std::chrono::milliseconds greeting{5'000};  ///< A connection that has not greeted by then is cut.
  std::chrono::milliseconds linger{5'000};    ///< See ~StoreServer().
  std::size_t strangers = 64;  ///< Connections that have not greeted, beside one for each rank: one
                               ///< more, and the oldest is cut.
};

/// Where a store's server lets ranks in.
struct Listener {
  Fd socket;
  /// Whoever comes proves that he knows it, where the network is not trusted (then it is empty).
  /// Null: a Unix socket, of which the kernel says who is at the other end.
  std::optional<Secret> secret;
  bool tls = false;  ///< What follows the proof is encrypted.
};

/// At the Unix socket of `job`. Throws `unavailable`, naming the process that has the address if it
/// can be told; `usage` where that is this process.
Listener unix_listener(const JobAddress& job);

/// Serves from construction to destruction. Silent: who is refused is told, and says so itself.
class StoreServer {
 public:
  /// Throws `unavailable` where sockets or threads cannot be had.
  StoreServer(const JobAddress& job, std::vector<Listener> listeners,
              const ServerLimits& limits = {});

  /// Waits, at most ServerLimits::linger, until the ranks that have joined have left: a rank 0 that
  /// is done early does not cut off those that are still reading. In a forked child it does
  /// nothing: the server is the parent's.
  ~StoreServer();

 private:
  class Running;
  ProcessOwned<Running> running_;
};

}  // namespace tutti
