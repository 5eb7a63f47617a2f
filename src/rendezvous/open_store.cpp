#include "rendezvous/open_store.h"

#include <fmt/format.h>

#include <sstream>

#include <tutti/error.hpp>

#include "common/random.h"
#include "common/secret.h"
#include "rendezvous/join.h"
#include "rendezvous/local_socket.h"
#include "rendezvous/memory_store.h"
#include "rendezvous/socket_store.h"
#include "rendezvous/tcp_socket.h"

namespace tutti {
namespace {

using rendezvous::Route;

// How this rank gets to the store: on rank 0, through which doors others come.
struct Way {
  JobAddress job;
  std::vector<Door> doors;
  std::unique_ptr<Route> route;
};

[[noreturn]] void refuse_without_secret(const LaunchEnvironment& launch) {
  throw Error(
      ErrorKind::usage,
      fmt::format("rank {}: the store is at {}, to be reached over the network, and this rank has "
                  "no secret to prove itself with. Make one (openssl rand -hex 32 > FILE; chmod "
                  "600 FILE) and give all ranks TUTTI_SECRET_FILE=FILE, or TUTTI_SECRET; or set "
                  "TUTTI_TRUST_NETWORK=yes where everybody who reaches that port may join the "
                  "job. Ranks of one machine need neither: MASTER_ADDR=localhost",
                  launch.rank, to_text({launch.master_address, launch.master_port})));
}

Door unix_door(const JobAddress& job) {
  return {rendezvous::listen_at(job.socket_name()), std::nullopt};
}

// By the address that the launcher or the user has given to all ranks.
Way way_by_address(const LaunchEnvironment& launch, const Secret& secret, bool may_cross,
                   Random& random) {
  Way way{{launch.master_port, launch.size, launch.job}, {}, nullptr};
  const SocketAddress place{launch.master_address, launch.master_port};
  const bool here = is_this_machine(place.host);
  const bool all_here =
      !launch.tcp_alone && (is_loopback(place.host) || (here && launch.local_size == launch.size));
  if ((launch.tcp_alone || !here) && !may_cross) refuse_without_secret(launch);
  if (launch.rank == 0) {
    if (!launch.tcp_alone) way.doors.push_back(unix_door(way.job));
    if (!all_here && may_cross) way.doors.push_back({rendezvous::listen_tcp(place), secret});
  }
  if (!launch.tcp_alone && (here || launch.rank == 0))
    way.route = rendezvous::local_route(way.job, launch.rank);
  else
    way.route = rendezvous::tcp_route(way.job, launch.rank, {place}, secret, random);
  return way;
}

// What rank 0 says by PMIx: the job's secret, and where it may be reached, a line each.
std::string word_of(const Secret& secret, int port) {
  std::string word(secret.bytes());
  for (const std::string& host : rendezvous::own_addresses())
    word.append("\n").append(to_text({host, port}));
  return word;
}

// Where no address is given, rank 0 chooses one, and a secret where there is none.
Way way_by_pmix(const LaunchEnvironment& launch, Secret secret, Store::Deadline deadline,
                Random& random) {
  Way way{{0, launch.size, launch.job}, {}, nullptr};
  if (launch.rank == 0) way.doors.push_back(unix_door(way.job));
  if (launch.rank == 0 || launch.local_size == launch.size)
    way.route = rendezvous::local_route(way.job, launch.rank);
  if (launch.local_size == launch.size) return way;

  std::string word;
  if (launch.rank == 0) {
    if (!secret) secret = make_secret(random);
    way.doors.push_back({rendezvous::listen_tcp({"", 0}), secret});
    word = word_of(secret, rendezvous::port_of(way.doors.back().listener));
  }
  std::istringstream lines(launch.pmix->hear_rank_0(word, deadline));
  std::vector<SocketAddress> places;
  std::string line;
  std::getline(lines, line);
  secret = Secret(line);
  while (std::getline(lines, line))
    if (auto place = parse_socket_address(line)) places.push_back(*std::move(place));
  if (places.empty())
    throw Error(ErrorKind::unavailable,
                fmt::format("rank {}: rank 0's machine has no network address", launch.rank));
  if (!way.route)
    way.route =
        rendezvous::tcp_route(way.job, launch.rank, std::move(places), std::move(secret), random);
  return way;
}

}  // namespace

std::shared_ptr<Store> open_store(const LaunchEnvironment& launch, const Config& config,
                                  Store::Deadline deadline, Log& log) {
  if (launch.size == 1) return std::make_shared<MemoryStore>();
  const Secret secret = configured_secret(config);
  SystemRandom random;
  Way way = launch.pmix ? way_by_pmix(launch, secret, deadline, random)
                        : way_by_address(launch, secret, secret || config.trust_network, random);
  std::unique_ptr<StoreServer> server;
  if (launch.rank == 0) server = std::make_unique<StoreServer>(way.job, std::move(way.doors));
  rendezvous::Joined joined =
      rendezvous::join_store(*way.route, way.job, launch.rank, deadline, log);
  log.write(LogLevel::debug, "rank {} of {}: joined the store of {} at {}", launch.rank,
            launch.size, joined.server, way.route->place());
  return std::make_shared<SocketStore>(std::move(joined), launch.rank, std::move(server));
}

}  // namespace tutti
