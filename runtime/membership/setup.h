// The start-up of a communicator: the store, the introduction of the ranks, their agreement, and
// the transport.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/secret.h"
#include "runtime/communicator_parts.h"
#include "runtime/membership/round.h"
#include "transport/local/local.h"
#include "transport/registry.h"

namespace tutti {

class Keeping;

/// Implements Communicator::from_env().
CommunicatorParts join_environment(const Config& config);

/// Implements Communicator::create(). `secret` returns that of the job, or throws; it is null where
/// there is none. `known` lists the transports that may be used. The other ranks are told of
/// settings that are wrong.
CommunicatorParts join_store(std::shared_ptr<Store> store, int rank, int size, const Config& config,
                             const std::function<Secret()>& secret,
                             std::vector<TransportEntry> known = transports());

/// Holds what the ranks of one process share.
struct Process {
  std::shared_ptr<Runtime> runtime;
  /// The hub of the local transport; null if some ranks are in other processes.
  std::shared_ptr<local::Hub> hub;
  std::vector<TransportEntry> transports = tutti::transports();
  std::function<void()> check = {};          ///< See TransportContext::check.
  std::shared_ptr<GpuDevice> gpu = nullptr;  ///< Of a rank that has one; else the settings say.
  std::optional<int> place = {};             ///< CommunicatorParts::own_place, if it is known.
  Keeping* keeping = nullptr;                ///< The connections that there are; null if none.
};

/// Does what Communicator::create() does, if all ranks are threads of `process`: for jobs of
/// thousands of ranks on one machine. Each thread calls it. The hub determines the number of ranks.
CommunicatorParts join_threads(std::shared_ptr<Store> store, int rank, const Process& process);

/// Makes the communicator of Communicator::shrink() and grow(): some ranks of `whole`, and
/// newcomers. The members join by `deadline`, over `store`, which wraps the store of `whole`. The
/// ranks of `whole` use the connections that they have, where all pass `keeping`; else they connect
/// anew.
CommunicatorParts join_regrouped(const CommunicatorParts& whole, const Regrouped& members,
                                 std::shared_ptr<WatchedStore> store, TimePoint deadline,
                                 Keeping* keeping = nullptr);

/// Joins the communicator that has this name in the store, as one of its ranks; if the name is
/// empty, the next free one is used.
CommunicatorParts join_named(std::shared_ptr<Store> store, std::string name, int rank, int size,
                             const Process& process, const Secret& secret, TimePoint deadline);

/// Implements Communicator::join() for the environment's job.
CommunicatorParts join_running_job(const Config& config);

/// Throws `usage` for settings that cannot be; called before anything is made from them.
void check_settings(const Config& config);
/// Binds the calling thread, if the configuration asks for it. Threads that it starts from now on,
/// of which the background thread is the first, inherit the binding.
void bind_rank(int rank, int size, const Config& config);

/// Implements Communicator::in_process().
std::vector<CommunicatorParts> join_in_process(int size, const Config& config);

/// For Communicator::split(): makes the parts of a communicator of some ranks of `whole`, with
/// rings of `ring_bytes`. Its transport is not connected yet: see Transport::join().
CommunicatorParts parts_of_subset(const CommunicatorParts& whole, Subset subset,
                                  std::size_t ring_bytes);

/// Returns the payload bytes of each ring of the first communicators of a job of which `ranks`
/// ranks share this machine.
std::size_t first_ring_bytes(const Config& config, int ranks);

/// Returns the payload bytes of each ring of one more communicator at the shared endpoint of
/// `whole`. The first few communicators get fast rings, and a thousand still fit in memory.
std::size_t ring_bytes_for_one_more(const CommunicatorParts& whole);

}  // namespace tutti
