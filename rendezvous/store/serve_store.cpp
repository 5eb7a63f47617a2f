// Implements serve_store() and connect_store() of tutti/store.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include "common/address.h"
#include "common/log.h"
#include "common/random.h"
#include "net/local_socket.h"
#include "net/tcp_socket.h"
#include "net/this_machine.h"
#include "rendezvous/store/join.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/socket_store.h"
#include "rendezvous/store/ticket.h"
#include "rendezvous/store/way.h"

namespace tutti {
namespace {

using rendezvous::Ticket;
using rendezvous::Way;

// All processes that use a ticket are newcomers to the server, which has no ranks.
Way way_of(const Ticket& ticket, Random& random) {
  Way way{JobAddress{0, 1, {}}, kFirstNewcomer, random.next() | 1, true, ticket.port != 0};
  way.rank += static_cast<int>(random.next() % kFirstNewcomer);
  way.secret = ticket.secret;
  way.tls = ticket.tls;
  return way;
}

// Returns whether the server of a ticket, if it still exists, listens at a Unix socket that this
// process can see: all its addresses are of this machine.
bool is_here(const Ticket& ticket) {
  return std::all_of(ticket.addresses.begin(), ticket.addresses.end(), net::is_this_machine);
}

// The server listened before the ticket was there, so that nobody who listens is nobody to wait
// for.
bool is_gone(const Ticket& ticket, JobAddress job) {
  job.server = ticket.server;
  return is_here(ticket) && net::connect_local(job.socket_name()).nobody_listens();
}

}  // namespace

std::string serve_store(const Config& config) {
  SystemRandom random;
  Ticket ticket;
  ticket.tls = config.tls;
  std::string secret;
  while (secret.size() < kLeastSecretBytes) {
    const std::uint64_t bits = random.next();
    secret.append(reinterpret_cast<const char*>(&bits), sizeof bits);
  }
  ticket.secret = Secret(secret);
  Way way = way_of(ticket, random);
  if (config.interfaces == "lo") way.master = SocketAddress{"127.0.0.1", 0};
  // A machine without a network serves its own processes.
  way.tcp = way.master || !net::own_addresses().empty();
  rendezvous::OpenedPlace place = rendezvous::open_place(way, random);
  ticket.server = std::stoull(place.address);
  for (SocketAddress& where : parse_socket_addresses(place.address)) {
    ticket.port = where.port;
    ticket.addresses.push_back(std::move(where.host));
  }
  serve_until_left(way.job, std::move(place.listeners), std::move(place.address));
  return encode(ticket);
}

std::shared_ptr<Store> connect_store(std::string_view ticket, Store::Deadline deadline,
                                     const Config& config) {
  const auto its = rendezvous::decode_ticket(ticket);
  if (!its)
    throw Error(
        ErrorKind::usage,
        fmt::format("{} bytes are no ticket to a store of this version of tutti", ticket.size()));
  if (its->tls != config.tls)
    throw Error(
        ErrorKind::mismatch,
        fmt::format("the store of this ticket is served with TUTTI_TLS={}, and this process "
                    "has TUTTI_TLS={}; set the same in all processes",
                    its->tls ? "yes" : "no", config.tls ? "yes" : "no"));
  SystemRandom random;
  Way way = way_of(*its, random);
  std::string address = fmt::format("{}\n", its->server);
  for (const std::string& host : its->addresses)
    address.append(to_text({host, its->port})).append("\n");
  const auto route = rendezvous::route_to(way, address, random);
  assert(route != nullptr);
  const rendezvous::Applying applying = way.applying(rendezvous::kMayStandBy);
  const int rank = way.rank;
  std::string obstacle;
  bool answered = false;
  auto joined =
      rendezvous::try_to_join(*route, way.job, rank, applying, deadline, obstacle, answered);
  if (!joined && is_gone(*its, way.job))
    throw Error(ErrorKind::peer_lost,
                "the process that serves the store of this ticket has ended, or the store has: "
                "all that had connected have left it");
  if (!joined) {
    Log log(config.log_level, config.log_sink);
    joined = rendezvous::join_store(*route, way.job, rank, deadline, log, applying);
  }
  return std::make_shared<SocketStore>(std::move(*joined), rank, nullptr, nullptr, std::move(way));
}

}  // namespace tutti
