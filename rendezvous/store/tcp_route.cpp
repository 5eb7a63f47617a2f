#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cassert>

#include <tutti/error.hpp>

#include "net/handshake.h"
#include "net/tcp_socket.h"
#include "rendezvous/store/route.h"

namespace tutti::rendezvous {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

// The limit for one attempt at one place: others may have to be tried, and lost packets may require
// a new attempt.
constexpr seconds kConnectLimit{3};
// The server closes a connection that takes longer than this.
constexpr seconds kHandshakeLimit{5};

using Handshake = net::Handshake<net::AuthInitiator>;

class TcpRoute final : public Route {
 public:
  TcpRoute(JobAddress job, int rank, std::vector<SocketAddress> places, Secret secret,
           Random& random, bool tls)
      : job_(std::move(job)),
        rank_(rank),
        places_(std::move(places)),
        secret_(std::move(secret)),
        random_(random),
        tls_(tls ? std::make_shared<const net::TlsContext>() : nullptr) {
    assert(rank_ >= 0 && !places_.empty());
  }

  std::optional<Joined> reach(const Patience& patience, std::string& obstacle) override;
  std::string place() const override { return to_text(places_.front()); }
  std::string advice() const override {
    return "see whether rank 0 has started on the machine that MASTER_ADDR names, with the same "
           "MASTER_PORT and with a secret as well: without one it serves its own machine alone";
  }
  std::chrono::milliseconds longest_pause() const override {
    return std::chrono::milliseconds(200);
  }

 private:
  std::optional<Joined> reach_one(const net::TcpPlace& place, const Patience& patience,
                                  std::string& obstacle);
  bool shake_hands(Handshake& handshake, const Patience& patience, std::string& obstacle) const;

  const JobAddress job_;
  const int rank_;
  const std::vector<SocketAddress> places_;
  const Secret secret_;
  Random& random_;
  const std::shared_ptr<const net::TlsContext> tls_;  // null if connections are not encrypted
};

std::optional<Joined> TcpRoute::reach(const Patience& patience, std::string& obstacle) {
  for (const SocketAddress& where : places_) {
    const net::Found found = net::find_places(where, patience);
    if (found.places.empty()) obstacle = found.why_not;
    for (const net::TcpPlace& place : found.places)
      if (auto joined = reach_one(place, patience, obstacle)) return joined;
  }
  return std::nullopt;
}

std::optional<Joined> TcpRoute::reach_one(const net::TcpPlace& place, const Patience& patience,
                                          std::string& obstacle) {
  net::TcpConnecting connecting =
      net::connect_tcp(place, patience.at_most_until(steady_clock::now() + kConnectLimit));
  if (!connecting.socket) {
    obstacle = connecting.why_not;
    return std::nullopt;
  }
  const net::Claim claim{net::Claim::Purpose::store, static_cast<std::uint32_t>(rank_), 0,
                         job_.job_hash(), tls_ != nullptr};
  Handshake handshake(std::move(connecting.socket), net::AuthInitiator(secret_, claim, random_),
                      tls_);
  std::string why_not;
  if (shake_hands(handshake, patience.at_most_until(steady_clock::now() + kHandshakeLimit),
                  why_not))
    return Joined{std::move(handshake.connection()), place.text(), Fd()};
  const net::AuthFailure failure = handshake.proof().failure();
  const bool believed = failure == net::AuthFailure::no_tls_here ||
                        failure == net::AuthFailure::no_tls_there ||
                        failure == net::AuthFailure::no_tls_key;
  if (failure != net::AuthFailure::none && (places_.size() == 1 || believed))
    throw Error(
        failure == net::AuthFailure::not_tutti ? ErrorKind::unavailable : ErrorKind::mismatch,
        fmt::format("{}: the store at {} {}", describe_rank(rank_), place.text(), why_not));
  obstacle = fmt::format("{} {}", place.text(), why_not);
  return std::nullopt;
}

bool TcpRoute::shake_hands(Handshake& handshake, const Patience& patience,
                           std::string& obstacle) const {
  for (;;) {
    const Handshake::State state = handshake.advance();
    if (state == Handshake::State::done) return true;
    if (state == Handshake::State::failed)
      obstacle = handshake.why();
    else if (!net::await_events(handshake.fd(), POLLIN, patience))
      obstacle = "does not answer";
    if (!obstacle.empty()) return false;
  }
}

}  // namespace

std::unique_ptr<Route> tcp_route(JobAddress job, int rank, std::vector<SocketAddress> places,
                                 Secret secret, Random& random, bool tls) {
  return std::make_unique<TcpRoute>(std::move(job), rank, std::move(places), std::move(secret),
                                    random, tls);
}

}  // namespace tutti::rendezvous
