#include <fmt/format.h>

#include <cstring>

#include <tutti/error.hpp>

#include "net/local_socket.h"
#include "rendezvous/store/route.h"

namespace tutti::rendezvous {
namespace {

class LocalRoute final : public Route {
 public:
  LocalRoute(JobAddress job, int rank, uid_t server_uid)
      : job_(std::move(job)), rank_(rank), server_uid_(server_uid) {}

  std::optional<Joined> reach(const Patience& patience, std::string& obstacle) override;
  std::string place() const override { return job_.place(); }
  std::string advice() const override {
    return fmt::format("see whether rank 0 has started, as the same user and with the same {}",
                       job_.place_name());
  }
  std::chrono::milliseconds longest_pause() const override { return std::chrono::milliseconds(50); }

 private:
  void check_server(const net::PeerProcess& server) const;

  const JobAddress job_;
  const int rank_;
  const uid_t server_uid_;
};

std::optional<Joined> LocalRoute::reach(const Patience&, std::string& obstacle) {
  net::LocalConnecting connecting = net::connect_local(job_.socket_name());
  if (!connecting.socket) {
    if (!connecting.nobody_listens() && !connecting.may_try_again())
      throw Error(ErrorKind::unavailable,
                  fmt::format("cannot connect to the store @{}: {}", job_.socket_name(),
                              std::strerror(connecting.error)));
    obstacle = connecting.nobody_listens() ? "nobody listens there" : "too many are waiting there";
    return std::nullopt;
  }
  const net::PeerProcess server = net::peer_of(connecting.socket.get());
  check_server(server);
  Fd end = net::watch_peer(connecting.socket.get());
  return Joined{net::Connection(std::move(connecting.socket)), server.describe(), std::move(end)};
}

void LocalRoute::check_server(const net::PeerProcess& server) const {
  if (server.uid == server_uid_) return;
  throw Error(ErrorKind::unavailable,
              fmt::format("{}: the store at {} is that of {} of user {}, and this rank runs as "
                          "user {}; choose another {}",
                          describe_rank(rank_), place(), server.describe(), server.uid, server_uid_,
                          job_.place_name()));
}

}  // namespace

std::unique_ptr<Route> local_route(JobAddress job, int rank, uid_t server_uid) {
  return std::make_unique<LocalRoute>(std::move(job), rank, server_uid);
}

}  // namespace tutti::rendezvous
