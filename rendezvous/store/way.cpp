#include "rendezvous/store/way.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include <tutti/error.hpp>

#include "common/text.h"
#include "net/local_socket.h"
#include "net/tcp_socket.h"
#include "net/this_machine.h"

namespace tutti::rendezvous {
namespace {

JobAddress at_server(JobAddress job, std::uint64_t server) {
  job.server = server;
  return job;
}

// Tries the Unix socket first: its name is drawn by lot, so nobody else on this machine has it.
class RouteToSuccessor final : public Route {
 public:
  RouteToSuccessor(std::unique_ptr<Route> local, std::unique_ptr<Route> tcp)
      : local_(std::move(local)), tcp_(std::move(tcp)) {
    assert(local_ != nullptr || tcp_ != nullptr);
  }
  std::optional<Joined> reach(const Patience& patience, std::string& obstacle) override {
    std::optional<Joined> joined;
    if (local_ != nullptr) joined = local_->reach(patience, obstacle);
    if (!joined && tcp_ != nullptr) joined = tcp_->reach(patience, obstacle);
    return joined;
  }
  std::string place() const override { return tcp_ != nullptr ? tcp_->place() : local_->place(); }
  std::string advice() const override {
    return "the process that serves the store has ended, or cannot be reached from here";
  }
  std::chrono::milliseconds longest_pause() const override { return std::chrono::milliseconds(50); }

 private:
  const std::unique_ptr<Route> local_, tcp_;  // either may be null
};

}  // namespace

OpenedPlace open_place(const Way& way, Random& random) {
  OpenedPlace opened;
  std::uint64_t server = 0;
  if (way.local) {
    while (server == 0) server = random.next() >> 1;
    opened.listeners.push_back(unix_listener(at_server(way.job, server)));
  }
  opened.address = fmt::format("{}\n", server);
  if (!way.tcp) return opened;
  // Where the first server can be reached by one address of this machine alone, so can this one.
  const bool here = way.master && net::is_this_machine(way.master->host);
  const std::string host = here ? way.master->host : "";
  opened.listeners.push_back({net::listen_tcp({host, 0}), way.secret, way.tls});
  const Listener& listener = opened.listeners.back();
  if (here) opened.address += to_text({host, net::port_of(listener.socket)}) + "\n";
  if (!here || !net::is_loopback(host)) opened.address += places_of(listener);
  return opened;
}

std::vector<std::function<Listener()>> public_place(const Way& way) {
  std::vector<std::function<Listener()>> parts;
  if (!way.passes_place_on) return parts;
  if (way.local)
    parts.emplace_back([name = way.job.socket_name()] {
      return Listener{net::listen_local(name), std::nullopt};
    });
  if (way.tcp && way.master && net::is_this_machine(way.master->host))
    parts.emplace_back([where = *way.master, secret = way.secret, tls = way.tls] {
      return Listener{net::listen_tcp(where), secret, tls};
    });
  return parts;
}

std::unique_ptr<Route> route_to(const Way& way, const std::string& address, Random& random) {
  const std::size_t line = std::min(address.find('\n'), address.size());
  const auto server = parse_number<std::uint64_t>(std::string_view(address).substr(0, line));
  if (!server) return nullptr;
  std::vector<SocketAddress> places =
      parse_socket_addresses(std::string_view(address).substr(line));
  std::unique_ptr<Route> local, tcp;
  if (way.local && *server != 0) local = local_route(at_server(way.job, *server), way.rank);
  if (way.tcp && !places.empty())
    tcp = tcp_route(way.job, way.rank, std::move(places), way.secret, random, way.tls);
  if (local == nullptr && tcp == nullptr) return nullptr;
  return std::make_unique<RouteToSuccessor>(std::move(local), std::move(tcp));
}

std::string places_of(const Listener& listener) {
  assert(listener.socket);
  std::string places;
  const int port = net::port_of(listener.socket);
  for (const std::string& host : net::own_addresses())
    places.append(to_text({host, port})).append("\n");
  if (places.empty())
    throw Error(ErrorKind::unavailable,
                "rank 0: this machine has no network address by which others could reach it");
  return places;
}

}  // namespace tutti::rendezvous
