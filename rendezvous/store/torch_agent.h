// A client of the store of torchrun's agent, which listens at MASTER_PORT itself
// (TORCHELASTIC_USE_AGENT_STORE): rank 0 publishes there the address of its own store. The agent
// speaks the protocol of torch's TCPStore, which has no authentication, so the address found there
// is only used to connect; the server at it still has to authenticate itself.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/address.h"
#include "common/clock.h"
#include "rendezvous/store/route.h"

namespace tutti::torch_agent {

/// Sets `key` to `address` in the agent's store. Throws `unavailable` if the agent has not stored
/// it by the deadline.
void publish_address(const SocketAddress& agent, std::string_view key, std::string_view address,
                     TimePoint deadline);

/// A route that connects by TCP to the address that rank 0 has published under `key`. Each attempt
/// reads the key again, because the address may still be that of an earlier communicator.
std::unique_ptr<rendezvous::Route> agent_route(JobAddress job, int rank, SocketAddress agent,
                                               std::string key, Secret secret, Random& random,
                                               bool tls = false);

}  // namespace tutti::torch_agent
