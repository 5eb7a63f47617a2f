// Opens the store that all ranks of a job share, according to the launcher and the settings.
#pragma once

#include <functional>
#include <memory>

#include <tutti/config.hpp>
#include <tutti/store.hpp>

#include "common/log.h"
#include "common/secret.h"
#include "rendezvous/launch/launch_environment.h"

namespace tutti {

/// The result of open_store().
struct OpenedStore {
  std::shared_ptr<Store> store;
  Secret secret;  ///< The job's secret: configured, or made by rank 0 under PMIx; may be empty.
  /// A newcomer calls it once it is a rank: from then on it may serve the store, and the store
  /// waits for its end. Takes a second at most, and does not throw. May be null.
  std::function<void()> be_rank = {};
};

/// Opens the job's store: rank 0 hosts it and the other ranks join it. A job of one rank gets a
/// store in its own memory, and a file:// store is opened by every rank.
///
/// Ranks on rank 0's machine join by a Unix socket, at which the kernel identifies the other end;
/// ranks on other machines join by TCP at MASTER_PORT, where each end proves that it knows the
/// job's secret. Rank 0 opens that port only if other machines may have ranks, and only if it has a
/// secret or trusts the network.
///
/// Throws `unavailable`, `mismatch`, `timeout` or `usage`, as described in join.h and
/// store_server.h; `usage` also if ranks on several machines have no secret. `log` is not used
/// after the call.
OpenedStore open_store(const LaunchEnvironment& launch, const Config& config,
                       Store::Deadline deadline, Log& log);

/// Opens the store of a running job for a newcomer, see read_newcomer_environment(). Waits until
/// `deadline` for the store to be there. Throws what open_store() throws.
OpenedStore open_store_as_newcomer(const LaunchEnvironment& launch, const Config& config,
                                   Store::Deadline deadline, Log& log);

}  // namespace tutti
