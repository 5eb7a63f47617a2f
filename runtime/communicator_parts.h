// What a communicator is made of: what its start-up, a split or a shrink hands to it.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "collectives/planning/prices.h"
#include "common/secret.h"
#include "common/sync.h"
#include "runtime/engine/wait.h"
#include "runtime/runtime.h"
#include "transport/channel.h"

namespace tutti {

/// What a communicator shares with those that are split off it: one set of connections has one
/// bell.
struct SharedEndpoint {
  std::shared_ptr<const Doorbell> doorbell = std::make_shared<const Doorbell>();
  SleeperPool sleepers;  ///< Over the bell and the transport's wait_fd().
  int ranks = 1;         ///< Of the first communicator that share this machine's cores.
  int cores = 1;         ///< Which they share.
  sync::Atomic<int> communicators{0};     ///< Alive.
  sync::Atomic<std::uint64_t> splits{0};  ///< Splits of any of them that this rank has begun.
  std::size_t ring_bytes =
      0;  ///< Of each channel of its first communicators: configured, or by the caches.
};

/// What a communicator is made of; see membership/setup.h.
struct CommunicatorParts {
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<Store> store;            ///< Null in process.
  std::string name = {};                   ///< In the store; empty: it was split off another.
  Secret secret = {};                      ///< The job's.
  std::shared_ptr<SharedEndpoint> shared;  ///< Outlives the transport.
  std::unique_ptr<Transport> transport;    ///< Connected.
  int rank = 0;
  int size = 1;
  std::size_t message_bytes =
      0;  ///< The largest message of a collective, which all ranks agree on.
  std::size_t largest_message = std::numeric_limits<std::size_t>::max();  ///< That all links carry.
  bool rings = true;               ///< All ranks' links have rings; agreed.
  int cores = 1;                   ///< That its ranks on a machine share, on average; agreed.
  std::vector<int> machines = {};  ///< By rank, the number of its machine; none: all on one.
  Spread spread = Spread::one_machine;
  std::vector<int> groups = {};       ///< As PlanRequest::groups; agreed.
  std::shared_ptr<PriceList> prices;  ///< Of rank 0's machine; shared by those split off.
  std::vector<StartupPhase> startup;

  /// What is the same in all that this rank asks of algorithms.
  PlanRequest request() const { return {.rank = rank, .ranks = size, .groups = groups}; }

  /// Wakes the threads of this process that sleep until something of this communicator ends.
  void wake_sleepers() const {
    if (transport->own_status_page().sleepers.load(std::memory_order_seq_cst) > 0)
      shared->doorbell->ring();
  }
};

}  // namespace tutti
