#include "transport/mesh/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include <tutti/error.hpp>

#include "common/descriptors.h"
#include "net/tcp_socket.h"
#include "rendezvous/host.h"

namespace tutti::mesh {
namespace {

// The number of descriptors beside those for peers: the program's own, and those of unauthenticated
// callers while ranks join.
constexpr std::size_t kOtherDescriptors = 256;

std::vector<std::string> hosts_of(const TransportContext& context) {
  const std::string& wanted = context.config->interfaces;
  std::vector<std::string> hosts = own_hosts(wanted);
  if (hosts.empty())
    throw Error(ErrorKind::unavailable,
                wanted == "auto"
                    ? "this machine has no network interface that is up"
                    : fmt::format("no interface that is up fits TUTTI_INTERFACES={}", wanted));
  return hosts;
}

}  // namespace

Mesh::Mesh(const TransportContext& context, std::string name)
    : context_(context), name_(std::move(name)), listener_(net::listen_tcp({"", 0})) {
  address_.identity = context.random->next();
  address_.host = host_identity();
  if (!context.secret) address_.secret = make_secret(*context.random);
  for (std::string& host : hosts_of(context))
    address_.places.push_back({std::move(host), net::port_of(listener_)});
}

std::vector<std::optional<Address>> Mesh::parse(std::span<const std::string> addresses) const {
  assert(addresses.size() == static_cast<std::size_t>(context_.size));
  std::vector<std::optional<Address>> parsed;
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    parsed.push_back(Address::parse(addresses[rank]));
    if (!parsed.back() && !addresses[rank].empty())
      throw Error(ErrorKind::mismatch,
                  fmt::format("rank {} does not offer {} as rank {} knows it: do all ranks run the "
                              "same version with the same TUTTI_TRANSPORTS?",
                              rank, name_, context_.rank));
  }
  const auto& own = parsed[static_cast<std::size_t>(context_.rank)];
  if (!own || own->identity != address_.identity)
    throw Error(ErrorKind::usage,
                fmt::format("two processes call themselves rank {}; give each its own RANK",
                            context_.rank));
  return parsed;
}

// Returns the secret of the handshake. Between machines it is the job's own, or none where the
// network is trusted. On one machine it is that of the first rank, which only processes that may
// use the job's store can have read.
Secret Mesh::secret_for(const std::vector<std::optional<Address>>& peers) const {
  if (context_.secret) return context_.secret;
  bool one_machine = true;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    if (!peers[rank] || peers[rank]->host == address_.host) continue;
    one_machine = false;
    if (!context_.config->trust_network)
      throw Error(
          ErrorKind::usage,
          fmt::format(
              "rank {}: rank {} is on another machine, and this rank has no secret to prove "
              "itself with. {}; or set TUTTI_TRUST_NETWORK=yes where everybody who reaches the "
              "ranks' ports may join the job",
              context_.rank, rank, kHowToMakeSecret));
  }
  const auto first =
      std::find_if(peers.begin(), peers.end(), [](const auto& peer) { return peer.has_value(); });
  Secret secret = one_machine && first != peers.end() ? (*first)->secret : Secret();
  if (context_.config->tls && !secret) refuse_tls_without_secret(context_.rank);
  return secret;
}

Connections Mesh::connect(std::span<const std::string> addresses, TimePoint deadline) {
  assert(listener_);
  std::vector<std::optional<Address>> peers = parse(addresses);
  const Secret secret = secret_for(peers);
  for (int rank = 0; rank < context_.size; ++rank)
    if (context_.is_elsewhere(rank)) peers[static_cast<std::size_t>(rank)].reset();
  const auto connections = static_cast<std::size_t>(
      std::count_if(peers.begin(), peers.end(), [](const auto& peer) { return peer.has_value(); }));
  need_descriptors(2 * connections + kOtherDescriptors, connections,
                   fmt::format("rank {} of {}", context_.rank, context_.size),
                   fmt::format("to connect to the others for {}", name_));
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    if (!peers[rank] || static_cast<int>(rank) == context_.rank) continue;
    reach_from(address_.host, *peers[rank]);
  }
  Connections joined = Join(context_, secret, peers, listener_).run(deadline);
  listener_.reset();
  return joined;
}

}  // namespace tutti::mesh
