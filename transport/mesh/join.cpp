#include "transport/mesh/join.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>

#include <tutti/error.hpp>

#include "common/bytes.h"
#include "common/descriptors.h"
#include "net/connection.h"

namespace tutti::mesh {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kConnectLimit{2};   // to connect to one place
constexpr seconds kGreetingLimit{5};  // to complete a handshake
constexpr milliseconds kPause{20};    // between two passes through a rank's places
constexpr int kRoundsRefused = 3;     // passes after which a refusal is final
static_assert(kPause < kConnectLimit && kConnectLimit < kGreetingLimit);

}  // namespace

Join::Join(const TransportContext& context, const Secret& secret,
           const std::vector<std::optional<Address>>& addresses, const Fd& listener)
    : context_(context),
      secret_(secret),
      addresses_(addresses),
      listener_(listener),
      tls_(context.config->tls ? std::make_shared<const net::TlsContext>() : nullptr),
      joined_(addresses.size()),
      pending_({.expected = joined_.data.size() + joined_.lifelines.size()},
               [this](Guest& guest) { return advance_greeting(guest); }) {
  assert(addresses.size() == static_cast<std::size_t>(context.size) && listener);
  for (const Use use : {Use::data, Use::lifeline}) {
    if (use == Use::lifeline && !has_lifelines()) break;
    for (int rank = 0; rank < context.rank; ++rank) {
      if (!addresses_[static_cast<std::size_t>(rank)]) continue;
      Caller& caller = callers_.emplace_back();
      caller.use = use;
      caller.rank = rank;
    }
  }
}

Connections Join::run(TimePoint deadline) {
  CheckTimes check_times(context_.size, context_.clock->now());
  while (!complete()) {
    const TimePoint now = context_.clock->now();
    if (now >= deadline) refuse_late();
    if (check_times.due(now) && context_.check) context_.check();
    for (Caller& caller : callers_)
      if (!joined(caller)) call(caller, now);
    // Where there are no descriptors left, wait() returns after a while and this is tried again.
    static_cast<void>(pending_.accept(
        listener_, now, [this](Fd socket) { return std::optional(guest_of(std::move(socket))); }));
    pending_.close_expired(now);
    pending_.serve_all();
    if (!complete()) wait(std::min(deadline, check_times.next()));
  }
  assert(!joined_.data[static_cast<std::size_t>(context_.rank)]);
  return std::move(joined_);
}

bool Join::complete() const {
  for (std::size_t rank = 0; rank < addresses_.size(); ++rank)
    if (is_peer(rank) && !is_joined(rank)) return false;
  return true;
}

void Join::wait(TimePoint until) {
  std::vector<pollfd> fds{{listener_.get(), POLLIN, 0}};
  for (Caller& caller : callers_) {
    if (joined(caller)) continue;
    const bool calls = caller.socket || caller.handshake;
    until = std::min(until, calls ? caller.give_up : caller.next_try);
    if (caller.socket) fds.push_back({caller.socket.get(), POLLOUT, 0});
    if (caller.handshake) fds.push_back({caller.handshake->fd(), POLLIN, 0});
  }
  pending_.for_each_fd([&](int fd) { fds.push_back({fd, POLLIN, 0}); });
  until = std::min(until, pending_.next_deadline().value_or(until));
  ::poll(fds.data(), fds.size(), net::poll_milliseconds(until));
}

// --- connections to lower ranks ---

void Join::call(Caller& caller, TimePoint now) {
  assert(caller.rank < context_.rank && !(caller.socket && caller.handshake));
  if (caller.socket) connect(caller, now);
  if (caller.handshake) return shake_hands(caller, now);
  if (caller.socket || joined(caller)) return;
  if (now < caller.next_try) return;
  const std::vector<SocketAddress>& places = address(caller.rank).places;
  if (places.empty()) {
    caller.obstacle = "it offers no address";
    caller.next_try = now + kConnectLimit;
    return;
  }
  assert(caller.place < places.size());
  // A numeric address is found at once.
  const auto found = net::find_places(places[caller.place], now);
  std::string why = found.why_not;
  if (!found.places.empty()) {
    auto connecting = net::begin_tcp(found.places.front());
    why = connecting.why_not;
    if (connecting.socket) {
      caller.socket = std::move(connecting.socket);
      caller.give_up = now + kConnectLimit;
      return;
    }
  }
  give_up(caller, why, now);
}

// Begins the handshake if the socket is connected by now.
void Join::connect(Caller& caller, TimePoint now) {
  const int fd = caller.socket.get();
  pollfd writable{fd, POLLOUT, 0};
  if (::poll(&writable, 1, 0) <= 0) {
    if (now >= caller.give_up)
      give_up(caller, "does not answer: is the machine up, does a firewall drop packets?", now);
    return;
  }
  if (const std::string why = net::why_not_connected(fd); !why.empty())
    return give_up(caller, why, now);
  caller.give_up = now + kGreetingLimit;
  net::tune_data(fd, net::round_trip_time(fd));
  const net::Claim claim{net::Claim::Purpose::data, static_cast<std::uint32_t>(context_.rank),
                         static_cast<std::uint32_t>(caller.rank), address(caller.rank).identity,
                         tls_ != nullptr};
  assert(!caller.handshake);
  caller.handshake.emplace(std::move(caller.socket),
                           net::AuthInitiator(secret_, claim, *context_.random), tls_);
}

void Join::shake_hands(Caller& caller, TimePoint now) {
  using State = net::Handshake<net::AuthInitiator>::State;
  const State state = caller.handshake->advance();
  if (state == State::done) return be_joined(caller, now);
  if (state == State::failed) {
    if (const auto why = caller.handshake->proof().failure(); why != net::AuthFailure::none)
      caller.refused = why;
    return give_up(caller, caller.handshake->why(), now);
  }
  if (now >= caller.give_up) give_up(caller, "does not answer", now);
}

void Join::be_joined(Caller& caller, TimePoint now) {
  assert(caller.rank < context_.rank && !joined(caller));
  const Opening open{.use = caller.use};
  net::Connection& connection = caller.handshake->connection();
  connection.queue(bytes_of(open));
  // A new socket has room for it.
  if (!connection.flush() || connection.queued_bytes() > 0)
    return give_up(caller, "closed the connection", now);
  assert(connection.received().empty() && "what follows is the stream's");
  joined(caller) = std::move(connection.stream());
  caller.handshake.reset();
}

void Join::give_up(Caller& caller, std::string why, TimePoint now) {
  const std::vector<SocketAddress>& places = address(caller.rank).places;
  caller.obstacle = fmt::format("{} {}", to_text(places[caller.place]), why);
  assert(!joined(caller));
  caller.socket.reset();
  caller.handshake.reset();
  caller.next_try = now;
  check_refusals(caller);
  if (++caller.place < places.size()) return;
  caller.place = 0;
  caller.next_try = now + kPause;
  ++caller.rounds;
}

// Throws where a lower rank has refused this one for good. One of a rank's places may lead to
// another process, so a refusal is final only when no place has led to the rank for some passes, or
// at once when the refusing end has authenticated as that rank.
void Join::check_refusals(const Caller& caller) const {
  const bool proved = caller.refused == net::AuthFailure::no_tls_here ||
                      caller.refused == net::AuthFailure::no_tls_there;
  if (caller.refused == net::AuthFailure::none || caller.refused == net::AuthFailure::not_tutti ||
      (caller.rounds < kRoundsRefused && !proved))
    return;
  throw Error(ErrorKind::mismatch, fmt::format("rank {} cannot connect to rank {}: {}",
                                               context_.rank, caller.rank, caller.obstacle));
}

// --- connections from higher ranks, and from any other process ---

Join::Guest Join::guest_of(Fd socket) {
  net::tune_data(socket.get(), net::round_trip_time(socket.get()));
  const net::Claim expected{net::Claim::Purpose::data, 0, static_cast<std::uint32_t>(context_.rank),
                            address(context_.rank).identity, tls_ != nullptr};
  return Guest(std::move(socket), net::AuthAcceptor(secret_, expected, *context_.random), tls_);
}

// Returns false where the connection is to be closed or has become a peer's. The initiator's first
// bytes say that it has not given up meanwhile; one that has given up says nothing.
bool Join::advance_greeting(Guest& guest) {
  if (guest.state() != Guest::State::done) guest.advance();
  if (const auto failure = guest.proof().failure(); failure != net::AuthFailure::none)
    throw Error(ErrorKind::mismatch, fmt::format("rank {}: rank {} {}", context_.rank,
                                                 guest.proof().initiator(), describe(failure)));
  if (guest.state() != Guest::State::done) return guest.state() != Guest::State::failed;
  net::Connection& connection = guest.connection();
  const bool open = connection.receive(sizeof(Opening));
  const auto opening = fixed_part<Opening>(connection.received());
  if (!opening) return open;
  const std::uint32_t rank = guest.proof().initiator();
  auto& joined = opening->use == Use::data ? joined_.data : joined_.lifelines;
  const bool expected = rank < joined.size() && static_cast<int>(rank) > context_.rank &&
                        is_peer(rank) && !joined[rank];
  assert(guest.has_proved() && connection.received().size() == sizeof(Opening));
  if (opening->magic == Opening::kMagic && expected) joined[rank] = std::move(connection.stream());
  return false;
}

void Join::refuse_late() {
  std::string missing;
  for (std::size_t rank = 0; rank < addresses_.size(); ++rank)
    if (is_peer(rank) && static_cast<int>(rank) > context_.rank && !is_joined(rank))
      missing += fmt::format("; rank {} never called", rank);
  for (const Caller& caller : callers_)
    if (!joined(caller) &&
        (caller.use == Use::data || joined_.data[static_cast<std::size_t>(caller.rank)]))
      missing += fmt::format("; rank {} is not reached: {}", caller.rank,
                             caller.obstacle.empty() ? "no answer yet" : caller.obstacle);
  std::string advice =
      "see whether a firewall stands between the machines, and name the interfaces that reach all "
      "of them in TUTTI_INTERFACES";
  if (pending_.short_of_files())
    advice = fmt::format(
        "this rank had too many open files to take their connections, and may have "
        "{}; raise the limit (ulimit -n)",
        allow_descriptors(0));
  throw Error(ErrorKind::timeout,
              fmt::format("rank {}: not all connections were there before the deadline{}; {}",
                          context_.rank, missing, advice));
}

}  // namespace tutti::mesh
