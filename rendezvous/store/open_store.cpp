#include "rendezvous/store/open_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>

#include <tutti/error.hpp>

#include "common/random.h"
#include "common/secret.h"
#include "net/tcp_socket.h"
#include "net/this_machine.h"
#include "rendezvous/store/file_store.h"
#include "rendezvous/store/join.h"
#include "rendezvous/store/memory_store.h"
#include "rendezvous/store/socket_store.h"
#include "rendezvous/store/torch_agent.h"
#include "rendezvous/store/way.h"

namespace tutti {
namespace {

using rendezvous::places_of;
using rendezvous::Route;
using rendezvous::Way;

// How this rank connects to the store and, on rank 0, the listeners at which others connect.
struct StoreAccess {
  JobAddress job;
  std::vector<Listener> listeners;
  std::unique_ptr<Route> route;
  Secret secret;                             // the job's; only access_by_pmix() sets it
  bool tcp = false;                          // ranks of other machines may join
  std::optional<SocketAddress> master = {};  // where newcomers look for the store by TCP
};

[[noreturn]] void refuse_without_secret(const LaunchEnvironment& launch) {
  throw Error(
      ErrorKind::usage,
      fmt::format("{}: the store is at {}, to be reached over the network, and this rank has "
                  "no secret to prove itself with. {}; or set TUTTI_TRUST_NETWORK=yes where "
                  "everybody who reaches that port may join the job. Ranks of one machine need "
                  "neither: MASTER_ADDR=localhost",
                  describe_rank(launch.rank), to_text({launch.master_address, launch.master_port}),
                  kHowToMakeSecret));
}

// Chooses how this rank connects if the launcher or the user has given all ranks an address.
StoreAccess access_by_address(const LaunchEnvironment& launch, const Secret& secret, bool may_cross,
                              bool tls, Random& random) {
  StoreAccess access{{launch.master_port, launch.size, launch.job}, {}, nullptr, {}};
  const SocketAddress place{launch.master_address, launch.master_port};
  const bool here = net::is_this_machine(place.host);
  const bool all_here = !launch.tcp_alone && (net::is_loopback(place.host) ||
                                              (here && launch.local_size == launch.size));
  access.tcp = !all_here && may_cross;
  access.master = place;
  if ((launch.tcp_alone || !here) && !may_cross) refuse_without_secret(launch);
  if (launch.rank == 0) {
    if (!launch.tcp_alone) access.listeners.push_back(unix_listener(access.job));
    if (!all_here && may_cross) access.listeners.push_back({net::listen_tcp(place), secret, tls});
  }
  if (!launch.tcp_alone && (here || launch.rank == 0))
    access.route = rendezvous::local_route(access.job, launch.rank);
  else
    access.route = rendezvous::tcp_route(access.job, launch.rank, {place}, secret, random, tls);
  return access;
}

// Chooses how this rank connects if torchrun's agent listens at MASTER_PORT. Rank 0 may then be on
// any machine.
StoreAccess access_by_agent(const LaunchEnvironment& launch, const Secret& secret, bool may_cross,
                            bool tls, Store::Deadline deadline, Random& random) {
  if (!may_cross) refuse_without_secret(launch);
  StoreAccess access{{launch.master_port, launch.size, launch.job}, {}, nullptr, {}};
  access.tcp = true;
  const SocketAddress agent{launch.master_address, launch.master_port};
  if (launch.rank != 0) {
    access.route = torch_agent::agent_route(access.job, launch.rank, agent, launch.agent_key,
                                            secret, random, tls);
    return access;
  }
  access.listeners.push_back(unix_listener(access.job));
  access.listeners.push_back({net::listen_tcp({"", 0}), secret, tls});
  access.route = rendezvous::local_route(access.job, 0);
  torch_agent::publish_address(agent, launch.agent_key, places_of(access.listeners.back()),
                               deadline);
  return access;
}

// Throws the error for a rank to which the launcher has not carried the secret that rank 0 has.
[[noreturn]] void refuse_without_the_secret_of_rank_0(int rank, bool tls) {
  throw Error(
      ErrorKind::usage,
      fmt::format("rank {}: rank 0 has a secret and this rank has none, so that anybody could pass "
                  "for rank 0{}. Give all ranks the same TUTTI_SECRET_FILE or TUTTI_SECRET "
                  "(mpirun: -x TUTTI_SECRET_FILE), or rank 0 none: it then makes one, which "
                  "travels by PMIx{}",
                  rank, tls ? " and the keys of TUTTI_TLS=yes would be known to all" : "",
                  tls ? ""
                      : "; or set TUTTI_TRUST_NETWORK=yes where everybody who reaches the job's "
                        "ports may join it"));
}

// Chooses how this rank connects if no address is given. Rank 0 then chooses an address, and a
// secret if it has none, and broadcasts both by PMIx, with the secret in the first line. That line
// is empty if rank 0 was given a secret; all ranks must then have been given it.
StoreAccess access_by_pmix(const LaunchEnvironment& launch, const Config& config, Secret secret,
                           Store::Deadline deadline, Random& random) {
  const bool tls = config.tls;
  StoreAccess access{{0, launch.size, launch.job}, {}, nullptr, {}};
  if (launch.rank == 0) access.listeners.push_back(unix_listener(access.job));
  if (launch.rank == 0 || launch.local_size == launch.size)
    access.route = rendezvous::local_route(access.job, launch.rank);
  if (launch.local_size == launch.size) return access;

  access.tcp = true;
  std::string announcement;
  if (launch.rank == 0) {
    const Secret made = secret ? Secret() : make_secret(random);
    if (made) secret = made;
    access.listeners.push_back({net::listen_tcp({"", 0}), secret, tls});
    announcement.append(made.bytes()).append("\n").append(places_of(access.listeners.back()));
  }
  announcement = launch.pmix->broadcast_from_rank_0(announcement, deadline);
  const std::size_t line = std::min(announcement.find('\n'), announcement.size());
  if (!secret) secret = Secret(announcement.substr(0, line));
  if (!secret && (tls || !config.trust_network))
    refuse_without_the_secret_of_rank_0(launch.rank, tls);
  std::vector<SocketAddress> places =
      parse_socket_addresses(std::string_view(announcement).substr(line));
  if (!access.route)
    access.route =
        rendezvous::tcp_route(access.job, launch.rank, std::move(places), secret, random, tls);
  access.secret = std::move(secret);
  return access;
}

// How this process reaches the servers that follow the first one.
Way way_of(const LaunchEnvironment& launch, const StoreAccess& access, const Secret& secret,
           bool tls, Random& random) {
  Way way{access.job, launch.rank, random.next() | 1, !launch.tcp_alone, access.tcp};
  way.secret = access.secret ? access.secret : secret;
  way.tls = tls;
  way.master = access.master;
  return way;
}

// Starts the server in rank 0. Beside the place that all ranks know it has one of its own, at which
// the rank that stands by for it finds it and no later one.
std::unique_ptr<StoreServer> start_server(StoreAccess& access, const Way& way, Random& random) {
  rendezvous::OpenedPlace own = rendezvous::open_place(way, random);
  for (Listener& listener : own.listeners) access.listeners.push_back(std::move(listener));
  return std::make_unique<StoreServer>(access.job, std::move(access.listeners), ServerLimits{},
                                       std::move(own.address));
}

}  // namespace

OpenedStore open_store_as_newcomer(const LaunchEnvironment& launch, const Config& config,
                                   Store::Deadline deadline, Log& log) {
  assert(launch.rank >= kFirstNewcomer && launch.size == 1);
  const Secret secret = configured_secret(config);
  if (!launch.file.empty()) return {std::make_shared<FileStore>(launch.file, deadline), secret};
  SystemRandom random;
  const bool may_cross = secret || config.trust_network;
  if (config.tls && config.trust_network && !secret)
    throw Error(ErrorKind::usage,
                fmt::format("a newcomer: TUTTI_TLS=yes takes its keys from the job's secret, and "
                            "this process has none. {}",
                            kHowToMakeSecret));
  StoreAccess access = access_by_address(launch, secret, may_cross, config.tls, random);
  assert(access.route != nullptr && access.listeners.empty());
  Way way = way_of(launch, access, secret, config.tls, random);
  rendezvous::Joined joined =
      rendezvous::join_store(*access.route, access.job, launch.rank, deadline, log,
                             way.applying(rendezvous::kMayStandBy | rendezvous::kIdle));
  way.job.size = std::max(1, joined.size);  // A newcomer may come to serve the ranks of the job.
  log.write(LogLevel::debug, "a newcomer joined the store of {} at {}", joined.server,
            access.route->place());
  const auto store = std::make_shared<SocketStore>(std::move(joined), launch.rank, nullptr, nullptr,
                                                   std::move(way), true);
  return {store, secret, [store] {
            try {
              store->be_rank(std::chrono::steady_clock::now() + std::chrono::seconds(1));
            } catch (const Error&) {  // The store is gone, or slow: it hears of it later.
            }
          }};
}

OpenedStore open_store(const LaunchEnvironment& launch, const Config& config,
                       Store::Deadline deadline, Log& log) {
  assert(0 <= launch.rank && launch.rank < launch.size);
  if (launch.size == 1 && launch.file.empty()) return {std::make_shared<MemoryStore>(), {}};
  const Secret secret = configured_secret(config);
  if (!launch.file.empty())
    return {std::make_shared<FileStore>(launch.file, launch.rank, launch.size, deadline), secret};
  SystemRandom random;
  const bool may_cross = secret || config.trust_network;
  const bool by_agent = !launch.agent_key.empty() && launch.local_size != launch.size;
  // TLS without a secret would protect nothing. It is refused here where the network is trusted.
  // With PMIx rank 0 makes a secret, and without trust the functions below report that it is
  // missing.
  if (config.tls && config.trust_network && !secret && !launch.pmix)
    refuse_tls_without_secret(launch.rank);
  StoreAccess access =
      launch.pmix ? access_by_pmix(launch, config, secret, deadline, random)
      : by_agent  ? access_by_agent(launch, secret, may_cross, config.tls, deadline, random)
                  : access_by_address(launch, secret, may_cross, config.tls, random);
  std::unique_ptr<StoreServer> server;
  assert(access.route != nullptr && (launch.rank == 0 || access.listeners.empty()));
  Way way = way_of(launch, access, secret, config.tls, random);
  if (launch.rank == 0) server = start_server(access, way, random);
  rendezvous::Joined joined = rendezvous::join_store(
      *access.route, access.job, launch.rank, deadline, log, way.applying(rendezvous::kMayStandBy));
  log.write(LogLevel::debug, "rank {} of {}: joined the store of {} at {}", launch.rank,
            launch.size, joined.server, access.route->place());
  return {std::make_shared<SocketStore>(std::move(joined), launch.rank, std::move(server),
                                        launch.pmix, std::move(way)),
          access.secret ? access.secret : secret};
}

}  // namespace tutti
