// The parts from which a communicator is constructed, which a start-up, a split or a shrink makes.
#pragma once

#include <cassert>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "collectives/planning/prices.h"
#include "common/secret.h"
#include "common/sync.h"
#include "devices/gpu_device.h"
#include "runtime/diagnosis/recorder.h"
#include "runtime/engine/wait.h"
#include "runtime/runtime.h"
#include "transport/channel.h"

namespace tutti {

/// Holds what a communicator shares with the communicators that are split off it. They use the same
/// connections, and therefore the same doorbell. One that has grown uses these and others.
struct SharedEndpoint {
  std::shared_ptr<const Doorbell> doorbell = std::make_shared<const Doorbell>();
  SleeperPool sleepers;                ///< They watch the doorbell and the transport's wait_fds().
  sync::Atomic<int> communicators{0};  ///< The number that exist.
  using Count = sync::Atomic<std::uint64_t>;
  /// The number of splits that this rank has begun of any communicator over these connections.
  std::shared_ptr<Count> splits = std::make_shared<Count>(0);
  std::size_t ring_bytes = 0;  ///< Ring size of each channel of its first communicators:
                               ///< configured, or computed from the size of the caches.
};

struct CommunicatorParts;
struct Regrouped;
class WatchedStore;

/// Makes the parts of a new communicator: see join_regrouped().
using JoinRegrouped =
    std::function<CommunicatorParts(const CommunicatorParts& whole, const Regrouped& members,
                                    std::shared_ptr<WatchedStore> store, TimePoint deadline)>;

/// Holds the parts from which a communicator is constructed; membership/setup.h makes them.
struct CommunicatorParts {
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<Store> store;  ///< Null if all ranks are in this process.
  /// The prefix of its keys in the store; empty if it was split off another communicator.
  std::string name = {};
  JoinRegrouped join_regrouped = nullptr;  ///< Null: tutti::join_regrouped().
  bool private_store = false;              ///< The store is in this process, and nobody else comes.
  Secret secret = {};                      ///< The secret of the job.
  std::shared_ptr<SharedEndpoint> shared;  ///< It outlives the transport.
  std::unique_ptr<Transport> transport;    ///< Connected.
  int rank = 0;
  int size = 1;
  /// The largest message of a collective, on which all ranks agree.
  std::size_t message_bytes = 0;
  /// The largest message that all links carry, in any communicator with the same ranks or fewer.
  /// Links whose messages are not bounded by a ring carry a cache line for each rank in any case.
  std::size_t largest_message = std::numeric_limits<std::size_t>::max();
  bool rings = true;  ///< Whether the links of all ranks have rings; all ranks agree on it.
  int cores = 1;  ///< The number of cores that its ranks on a machine share, on average; all ranks
                  ///< agree on it.
  /// These hold how many ranks share this machine's cores, of the communicator that this one was
  /// split off, and how many cores these are.
  int machine_ranks = 1, machine_cores = 1;
  std::vector<int> machines = {};  ///< The number of each rank's machine, indexed by rank; empty if
                                   ///< all ranks are on one machine.
  Spread spread = Spread::one_machine;
  std::vector<int> groups = {};  ///< The same as PlanRequest::groups; all ranks agree on it.
  std::vector<int> places = {};  ///< The same as PlanRequest::places; all ranks agree on it.
  /// This is the place in its machine that this rank has told the others; a shrink or grow tells
  /// them the same one.
  std::optional<int> own_place = {};
  /// How often it, or one that it comes from, has grown over connections that it had.
  int times_grown = 0;
  /// The prices on rank 0's machine; communicators that are split off share it.
  std::shared_ptr<PriceList> prices;
  /// The GPU that runs the collectives of this rank; null if the host does. All ranks have one, or
  /// none has.
  std::shared_ptr<GpuDevice> gpu = nullptr;
  std::vector<StartupPhase> startup;
  RecordedName recorded = {};  ///< How the flight recorder calls the communicator.
  /// Records the operations; null until the communicator is made.
  std::unique_ptr<Recorder> recorder = nullptr;

  /// Returns the fields that are the same in all requests of this rank to algorithms.
  PlanRequest request() const {
    return {.rank = rank, .ranks = size, .groups = groups, .places = places};
  }

  /// Returns whether the parts are there and fit together.
  bool is_sound() const {
    const auto each = static_cast<std::size_t>(size);
    return runtime != nullptr && shared != nullptr && transport != nullptr && rank >= 0 &&
           rank < size && message_bytes > 0 && cores >= 1 && machine_ranks >= 1 &&
           (machines.empty() || machines.size() == each) &&
           (groups.empty() || groups.size() == each) && (places.empty() || places.size() == each);
  }

  /// Wakes the threads of this process that sleep until an operation of this communicator ends.
  void wake_sleepers() const {
    if (transport->own_status_page().sleepers.any()) shared->doorbell->ring();
  }
};

/// Adds the recorder. Throws `unavailable` if there is no memory for it.
inline CommunicatorParts recorded(CommunicatorParts parts) {
  assert(parts.is_sound() && parts.recorder == nullptr);
  parts.recorder = std::make_unique<Recorder>(parts.runtime->trace_memory(), parts.recorded,
                                              parts.rank, parts.size);
  return parts;
}

}  // namespace tutti
