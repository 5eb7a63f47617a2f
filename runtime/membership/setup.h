// How a communicator comes to be: store, hellos, agreement, transport.
#pragma once

#include <memory>
#include <vector>

#include "common/secret.h"
#include "runtime/communicator_parts.h"
#include "transport/local/local.h"
#include "transport/registry.h"

namespace tutti {

/// Communicator::from_env.
CommunicatorParts join_environment(const Config& config);

/// Communicator::create. `secret` is the job's, or none where it has none; `known` has the
/// transports that there are.
CommunicatorParts join_store(std::shared_ptr<Store> store, int rank, int size, const Config& config,
                             const Secret& secret,
                             std::vector<TransportEntry> known = transports());

/// What ranks of one process share.
struct Process {
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<local::Hub> hub;  ///< Where all ranks meet; null: not all are of this process.
  std::vector<TransportEntry> transports = tutti::transports();
};

/// As Communicator::create, for a rank that is a thread of `process`, as all others are: for jobs
/// of thousands of ranks on one machine. Called by each thread; as many ranks as the hub has.
CommunicatorParts join_threads(std::shared_ptr<Store> store, int rank, const Process& process);

/// For Communicator::shrink(): a communicator of those `members` of `whole` that are alive, known
/// as `name` in the store of `whole`. The members join by `deadline`, over `store`, which wraps
/// that store.
CommunicatorParts join_survivors(const CommunicatorParts& whole, const std::vector<int>& members,
                                 std::string name, std::shared_ptr<Store> store,
                                 TimePoint deadline);

/// Communicator::in_process.
std::vector<CommunicatorParts> join_in_process(int size, const Config& config);

/// Communicator::split: of some ranks of `whole`, with rings of `ring_bytes`. Its transport is not
/// connected yet.
CommunicatorParts join_subset(const CommunicatorParts& whole, Subset subset,
                              std::size_t ring_bytes);

/// Connects its transport: waits for the other members to have made theirs.
void connect_subset(CommunicatorParts& part);

/// Payload bytes of each ring of one more communicator beside those of `whole`'s shared endpoint:
/// the first few are fast, and a thousand still fit.
std::size_t ring_bytes_for_one_more(const CommunicatorParts& whole);

}  // namespace tutti
