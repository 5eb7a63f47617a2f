// From what the launcher said to the store that all ranks share.
#pragma once

#include <memory>

#include <tutti/store.hpp>

#include "common/log.h"
#include "rendezvous/launch_environment.h"

namespace tutti {

/// Rank 0 hosts the store, the others join it; a job of one rank has one of its own. Throws
/// `unavailable`, `mismatch`, `timeout`, `usage`: see join.h and store_server.h. `log` is used
/// during the call alone.
std::shared_ptr<Store> open_store(const LaunchEnvironment& launch, Store::Deadline deadline,
                                  Log& log);

}  // namespace tutti
