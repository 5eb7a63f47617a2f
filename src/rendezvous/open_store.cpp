#include "rendezvous/open_store.h"

#include <fmt/format.h>

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

// Which doors a job's store has, and by which of them this rank goes.
struct Ways {
  bool unix_door, tcp_door;
  bool by_unix;
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

Ways choose(const LaunchEnvironment& launch, bool may_cross) {
  const std::string& address = launch.master_address;
  const bool here = is_this_machine(address);
  const bool all_here =
      !launch.tcp_alone && (is_loopback(address) || (here && launch.local_size == launch.size));
  const bool by_unix = !launch.tcp_alone && (launch.rank == 0 || here);
  const bool must_cross = launch.tcp_alone || !here;
  if (must_cross && !may_cross) refuse_without_secret(launch);
  return {!launch.tcp_alone, may_cross && !all_here, by_unix};
}

std::unique_ptr<StoreServer> make_server(const JobAddress& job, const SocketAddress& place,
                                         const Ways& ways, const Secret& secret) {
  std::vector<Door> doors;
  if (ways.unix_door) doors.push_back({rendezvous::listen_at(job.socket_name()), std::nullopt});
  if (ways.tcp_door) doors.push_back({rendezvous::listen_tcp(place), secret});
  return std::make_unique<StoreServer>(job, std::move(doors));
}

}  // namespace

std::shared_ptr<Store> open_store(const LaunchEnvironment& launch, const Config& config,
                                  Store::Deadline deadline, Log& log) {
  if (launch.size == 1) return std::make_shared<MemoryStore>();
  const Secret secret = configured_secret(config);
  const Ways ways = choose(launch, secret || config.trust_network);
  const JobAddress job{launch.master_port, launch.size, launch.job};
  const SocketAddress place{launch.master_address, launch.master_port};
  std::unique_ptr<StoreServer> server;
  if (launch.rank == 0) server = make_server(job, place, ways, secret);
  SystemRandom random;
  const auto route = ways.by_unix
                         ? rendezvous::local_route(job, launch.rank)
                         : rendezvous::tcp_route(job, launch.rank, {place}, secret, random);
  rendezvous::Joined joined = rendezvous::join_store(*route, job, launch.rank, deadline, log);
  log.write(LogLevel::debug, "rank {} of {}: joined the store of {} at {}", launch.rank,
            launch.size, joined.server, route->place());
  return std::make_shared<SocketStore>(std::move(joined), launch.rank, std::move(server));
}

}  // namespace tutti
