#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include <tutti/error.hpp>

#include "net/authentication.h"
#include "net/tcp_socket.h"
#include "rendezvous/store/route.h"

namespace tutti::rendezvous {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

// Of one place, where there are others, and where packets that were lost want a new attempt.
constexpr seconds kConnectLimit{3};
// The server cuts whoever takes longer than this.
constexpr seconds kHandshakeLimit{5};

class TcpRoute final : public Route {
 public:
  TcpRoute(JobAddress job, int rank, std::vector<SocketAddress> places, Secret secret,
           Random& random, bool tls)
      : job_(std::move(job)),
        rank_(rank),
        places_(std::move(places)),
        secret_(std::move(secret)),
        random_(random),
        tls_(tls ? std::make_shared<const TlsContext>() : nullptr) {}

  std::optional<Joined> reach(Store::Deadline deadline, std::string& obstacle) override;
  std::string place() const override { return to_text(places_.front()); }
  std::string advice() const override {
    return "see whether rank 0 has started on the machine that MASTER_ADDR names, with the same "
           "MASTER_PORT and with a secret as well: without one it serves its own machine alone";
  }
  std::chrono::milliseconds longest_pause() const override {
    return std::chrono::milliseconds(200);
  }

 private:
  std::optional<Joined> reach_one(const TcpPlace& place, Store::Deadline deadline,
                                  std::string& obstacle);
  AuthFailure authenticate(Connection& connection, Store::Deadline deadline, std::string& obstacle);
  void encrypt(Connection& connection, const TlsKey& key, Store::Deadline deadline,
               std::string& obstacle) const;

  const JobAddress job_;
  const int rank_;
  const std::vector<SocketAddress> places_;
  const Secret secret_;
  Random& random_;
  const std::shared_ptr<const TlsContext> tls_;  // null: nothing is encrypted
};

std::optional<Joined> TcpRoute::reach(Store::Deadline deadline, std::string& obstacle) {
  for (const SocketAddress& where : places_) {
    const Found found = find_places(where, deadline);
    if (found.places.empty()) obstacle = found.why_not;
    for (const TcpPlace& place : found.places)
      if (auto joined = reach_one(place, deadline, obstacle)) return joined;
  }
  return std::nullopt;
}

std::optional<Joined> TcpRoute::reach_one(const TcpPlace& place, Store::Deadline deadline,
                                          std::string& obstacle) {
  TcpConnecting connecting =
      connect_tcp(place, std::min<Store::Deadline>(deadline, steady_clock::now() + kConnectLimit));
  if (!connecting.socket) {
    obstacle = connecting.why_not;
    return std::nullopt;
  }
  Joined joined{Connection(std::move(connecting.socket)), place.text(), Fd()};
  std::string why_not;
  const AuthFailure failure = authenticate(
      joined.connection, std::min<Store::Deadline>(deadline, steady_clock::now() + kHandshakeLimit),
      why_not);
  const bool believed = failure == AuthFailure::no_tls_here ||
                        failure == AuthFailure::no_tls_there || failure == AuthFailure::no_tls_key;
  if (failure != AuthFailure::none && (places_.size() == 1 || believed))
    throw Error(
        failure == AuthFailure::not_tutti ? ErrorKind::unavailable : ErrorKind::mismatch,
        fmt::format("rank {}: the store at {} {}", rank_, joined.server, describe(failure)));
  if (failure != AuthFailure::none) why_not = describe(failure);
  if (why_not.empty()) return joined;
  obstacle = fmt::format("{} {}", joined.server, why_not);
  return std::nullopt;
}

// Either fails, or leaves a reason in `obstacle`, or has succeeded.
AuthFailure TcpRoute::authenticate(Connection& connection, Store::Deadline deadline,
                                   std::string& obstacle) {
  AuthInitiator initiator(secret_,
                          {Claim::Purpose::store, static_cast<std::uint32_t>(rank_), 0,
                           job_.job_hash(), tls_ != nullptr},
                          random_);
  for (;;) {
    std::string_view input = connection.received();
    const std::size_t before = input.size();
    std::string output;
    const auto state = initiator.advance(input, output);
    connection.consume(before - input.size());
    connection.queue(output);
    if (state == AuthInitiator::State::done) {
      if (tls_ != nullptr) encrypt(connection, initiator.tls_key(), deadline, obstacle);
      return AuthFailure::none;
    }
    if (state == AuthInitiator::State::failed) return initiator.failure();
    pollfd waited{connection.fd(), POLLIN, 0};
    const bool open = connection.flush();
    if (open && poll(&waited, 1, poll_milliseconds(deadline)) == 0)
      obstacle = "does not answer";
    else if (!open || (!connection.receive() && connection.received().empty()))
      obstacle = "closed the connection";
    if (!obstacle.empty()) return AuthFailure::none;
  }
}

void TcpRoute::encrypt(Connection& connection, const TlsKey& key, Store::Deadline deadline,
                       std::string& obstacle) const {
  if (!connection.received().empty()) {  // nothing is taken for encrypted that has come before
    obstacle = "says more than it may before it encrypts";
    return;
  }
  connection.stream().encrypt(tls_, Tls::Role::client, key);
  Tls& tls = *connection.stream().tls();
  for (;;) {
    const Tls::Handshake how = tls.shake_hands();
    if (how == Tls::Handshake::done) return;
    pollfd waited{connection.fd(), POLLIN, 0};
    if (how == Tls::Handshake::failed)
      obstacle = tls.why();
    else if (poll(&waited, 1, poll_milliseconds(deadline)) == 0)
      obstacle = "does not answer";
    if (!obstacle.empty()) return;
  }
}

}  // namespace

std::unique_ptr<Route> tcp_route(JobAddress job, int rank, std::vector<SocketAddress> places,
                                 Secret secret, Random& random, bool tls) {
  return std::make_unique<TcpRoute>(std::move(job), rank, std::move(places), std::move(secret),
                                    random, tls);
}

}  // namespace tutti::rendezvous
