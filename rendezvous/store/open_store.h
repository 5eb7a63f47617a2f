// From what the launcher said to the store that all ranks share.
#pragma once

#include <memory>

#include <tutti/config.hpp>
#include <tutti/store.hpp>

#include "common/log.h"
#include "common/secret.h"
#include "rendezvous/launch/launch_environment.h"

namespace tutti {

struct OpenedStore {
  std::shared_ptr<Store> store;
  Secret secret;  ///< The job's, if it has one: configured, or made by rank 0 under PMIx.
};

/// Rank 0 hosts the store, the others join it; a job of one rank has one of its own.
///
/// Ranks of rank 0's machine join by a Unix socket, whose other end the kernel vouches for; those
/// of other machines by TCP at MASTER_PORT, where each end proves that it knows the job's secret.
/// Rank 0 opens that port only where other machines may have ranks, and where it has a secret or
/// trusts the network.
///
/// Throws `unavailable`, `mismatch`, `timeout`, `usage`: see join.h and store_server.h; `usage`
/// also where ranks are to meet across machines without a secret. `log` is used during the call
/// alone.
OpenedStore open_store(const LaunchEnvironment& launch, const Config& config,
                       Store::Deadline deadline, Log& log);

}  // namespace tutti
