// The store of torchrun's agent, which keeps MASTER_PORT for itself (TORCHELASTIC_USE_AGENT_STORE):
// rank 0 leaves word there where its own store is. It speaks the protocol of torch's TCPStore,
// which has no authentication: what is found there is where to knock, and nothing that is believed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/address.h"
#include "common/clock.h"
#include "rendezvous/store/route.h"

namespace tutti::torch_agent {

/// Leaves `word` under `key`. Throws `unavailable` where the agent's store does not take it by the
/// deadline.
void leave_word(const SocketAddress& agent, std::string_view key, std::string_view word,
                TimePoint deadline);

/// By TCP, to where rank 0 has left word that it is, asked anew at each attempt: what is found may
/// be an earlier communicator's.
std::unique_ptr<rendezvous::Route> agent_route(JobAddress job, int rank, SocketAddress agent,
                                               std::string key, Secret secret, Random& random,
                                               bool tls = false);

}  // namespace tutti::torch_agent
