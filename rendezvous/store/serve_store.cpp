// Implements serve_store() and connect_store() of tutti/store.hpp.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include "common/address.h"
#include "common/log.h"
#include "common/random.h"
#include "common/secret.h"
#include "common/text.h"
#include "net/authentication.h"
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
  Way way{JobAddress{0, 1, {}}, kFirstNewcomer, random.next() | 1, true, !ticket.addresses.empty()};
  way.job.server = ticket.server;
  way.rank += static_cast<int>(random.next() % kFirstNewcomer);
  way.passes_place_on = !ticket.comes_first;  // Another job may use a known address next.
  // A server that takes over opens no port to other machines where the first one has none.
  if (!ticket.addresses.empty() && net::is_loopback(ticket.addresses.front()))
    way.master = SocketAddress{ticket.addresses.front(), ticket.port};
  way.secret = ticket.secret;
  way.tls = ticket.tls;
  return way;
}

// Returns whether the server of a ticket, if it still exists, listens at a Unix socket that this
// process can see: all its addresses are of this machine.
bool is_here(const Ticket& ticket) {
  return std::all_of(ticket.addresses.begin(), ticket.addresses.end(), net::is_this_machine);
}

// The server of a ticket that does not come first listened before the ticket was there, so that
// nobody who listens is nobody to wait for.
class RouteByTicket final : public rendezvous::Route {
 public:
  RouteByTicket(const Ticket& ticket, const Way& way, std::unique_ptr<Route> route)
      : ends_(!ticket.comes_first && is_here(ticket)),
        port_(ticket.addresses.empty() ? ticket.port : 0),
        name_(way.job.socket_name()),
        route_(std::move(route)) {
    assert(route_ != nullptr);
  }

  std::optional<rendezvous::Joined> reach(const Patience& patience,
                                          std::string& obstacle) override {
    auto joined = route_->reach(patience, obstacle);
    if (!joined && ends_ && net::connect_local(name_).nobody_listens())
      throw Error(ErrorKind::peer_lost,
                  "the process that serves the store of this ticket has ended, or the store has: "
                  "all that had connected have left it");
    return joined;
  }
  std::string place() const override {
    return port_ == 0 ? route_->place() : fmt::format("port {} of this machine", port_);
  }
  std::string advice() const override { return route_->advice(); }
  std::chrono::milliseconds longest_pause() const override { return route_->longest_pause(); }

 private:
  const bool ends_;  // It throws once nobody listens.
  const int port_;   // by which users know a server that only this machine reaches; else 0
  const std::string name_;
  const std::unique_ptr<Route> route_;
};

// Returns the addresses of a host. A machine may know itself by its name at an address of the
// loopback interface, where others do not reach it.
std::vector<std::string> numeric(const SocketAddress& where, Store::Deadline deadline) {
  const net::Found found = net::find_places(where, deadline);
  std::vector<std::string> addresses;
  for (const net::TcpPlace& place : found.places) addresses.push_back(place.socket_address().host);
  const bool is_name = std::find(addresses.begin(), addresses.end(), where.host) == addresses.end();
  if (is_name && where.host != "localhost" &&
      std::any_of(addresses.begin(), addresses.end(), net::is_loopback)) {
    const std::vector<std::string> own = net::own_addresses();
    if (!own.empty()) addresses = own;
  }
  if (addresses.empty())
    throw Error(ErrorKind::timeout,
                fmt::format("the host of {} has no address: {}", to_text(where), found.why_not));
  return addresses;
}

Ticket decoded(std::string_view ticket, const Config& config) {
  auto its = rendezvous::decode_ticket(ticket);
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
  return *std::move(its);
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
  ServerLimits limits;
  limits.once = limits.only_newcomers = true;
  serve_detached(way.job, std::move(place.listeners), limits, std::move(place.address));
  return encode(ticket);
}

std::string ticket_at(std::string_view address, Store::Deadline deadline, const Config& config) {
  const auto where = parse_socket_address(address);
  if (!where)
    throw Error(ErrorKind::usage, fmt::format("{} is no address of a store: it is written like "
                                              "node7:29500 or [fe80::1]:29500",
                                              shown(address)));
  if (where->host.find('%') != std::string::npos)
    throw Error(ErrorKind::usage, fmt::format("the address of a store, {}, is valid on one link "
                                              "alone: it is to be the same on all machines",
                                              shown(address)));
  const Secret secret = configured_secret(config);
  const bool is_here = net::is_this_machine(where->host);
  if (!secret && (config.tls || (!config.trust_network && !is_here)))
    throw Error(ErrorKind::usage,
                fmt::format("a store at {}, {}, needs a secret. {}", shown(address),
                            config.tls ? "with TUTTI_TLS=yes" : "which is another machine",
                            kHowToMakeSecret));
  // The socket's name and the ticket's secret can be guessed only by those who know the job's
  // secret. Without one, both are public.
  const net::Proof drawn = net::keyed_hash(secret, fmt::format("tutti store at {}", address));
  Ticket ticket;
  std::memcpy(&ticket.server, drawn.data(), sizeof ticket.server);
  ticket.server = ticket.server >> 1 | 1;
  ticket.secret = Secret(std::string(reinterpret_cast<const char*>(drawn.data()) + 16, 16));
  ticket.tls = config.tls;
  ticket.comes_first = true;
  ticket.port = where->port;
  if (!secret && !config.trust_network) return encode(ticket);
  ticket.addresses = numeric(*where, deadline);
  return encode(ticket);
}

void serve_store_at(std::string_view ticket, const Config& config) {
  const Ticket its = decoded(ticket, config);
  if (!its.addresses.empty() &&
      std::none_of(its.addresses.begin(), its.addresses.end(), net::is_this_machine))
    throw Error(ErrorKind::usage,
                fmt::format("a store at {} is to be served there, and that is another machine",
                            to_text(SocketAddress{its.addresses.front(), its.port})));
  SystemRandom random;
  const Way way = way_of(its, random);
  const std::string name = way.job.socket_name();
  std::vector<Listener> listeners;
  listeners.push_back({net::listen_local(name), std::nullopt});
  if (!listeners.front().socket) {
    const net::LocalConnecting probe = net::connect_local(name);
    const net::PeerProcess owner =
        probe.socket ? net::peer_of(probe.socket.get()) : net::PeerProcess{};
    if (owner.pid == getpid()) return;
    throw Error(ErrorKind::unavailable,
                fmt::format("the address of the store is in use: {} serves it, for another job, or "
                            "for another rank 0",
                            owner.describe()));
  }
  std::string address = fmt::format("{}\n", its.server);
  const bool has_port = !its.addresses.empty() &&
                        (config.interfaces != "lo" || net::is_loopback(its.addresses.front()));
  if (has_port) {
    const std::string& first = its.addresses.front();
    const SocketAddress where{net::is_loopback(first) ? first : "", its.port};
    listeners.push_back({net::listen_tcp(where), its.secret, its.tls});
    if (!where.host.empty())
      address += to_text(where) + "\n";
    else
      address += rendezvous::places_of(listeners.back());
  }
  ServerLimits limits;
  limits.only_newcomers = true;
  serve_detached(way.job, std::move(listeners), limits, std::move(address));
}

std::shared_ptr<Store> connect_store(std::string_view ticket, Store::Deadline deadline,
                                     const Config& config, const std::function<bool()>& given_up) {
  const Ticket its = decoded(ticket, config);
  SystemRandom random;
  Way way = way_of(its, random);
  std::string address = fmt::format("{}\n", its.server);
  for (const std::string& host : its.addresses)
    address.append(to_text({host, its.port})).append("\n");
  RouteByTicket route(its, way, rendezvous::route_to(way, address, random));
  const int rank = way.rank;
  Log log(config.log_level, config.log_sink);
  rendezvous::Joined joined = rendezvous::join_store(route, way.job, rank, {deadline, given_up},
                                                     log, way.applying(rendezvous::kMayStandBy));
  return std::make_shared<SocketStore>(std::move(joined), rank, nullptr, nullptr, std::move(way));
}

}  // namespace tutti
