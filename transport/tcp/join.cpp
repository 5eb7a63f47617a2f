#include "transport/tcp/join.h"

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
#include "net/connection.h"
#include "transport/tcp/frame.h"

namespace tutti::tcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kConnectLimit{2};   // of one place, where there may be others
constexpr seconds kGreetingLimit{5};  // of a handshake
constexpr milliseconds kPause{20};    // between two rounds through a rank's places
constexpr int kRoundsRefused = 3;     // then what refuses this rank is believed
constexpr std::size_t kStrangers = 64;
constexpr int kLookAgainMs = 1000;

}  // namespace

bool Greeting::read(std::size_t bytes) {
  assert(input_.size() <= bytes);
  std::array<char, 128> buffer;
  while (input_.size() < bytes) {
    const std::size_t room = std::min(buffer.size(), bytes - input_.size());
    const iovec to{buffer.data(), room};
    const ssize_t got = stream_.read({&to, 1});
    if (got < 0) return not_now(errno);
    if (got == 0) return false;
    input_.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return true;
}

// A fresh socket has room for a handshake.
bool Greeting::write(std::string_view bytes) {
  const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  return bytes.empty() || (stream_.write({&piece, 1}) == static_cast<ssize_t>(bytes.size()) &&
                           stream_.unsent_bytes() == 0);
}

Join::Join(const TransportContext& context, const Secret& secret,
           const std::vector<std::optional<Address>>& addresses, const Fd& listener)
    : context_(context),
      secret_(secret),
      addresses_(addresses),
      listener_(listener),
      tls_(context.config->tls ? std::make_shared<const TlsContext>() : nullptr) {
  joined_.data.resize(addresses.size());
  if (addresses.size() <= kMostWithLifelines) joined_.lifelines.resize(addresses.size());
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
  while (!complete()) {
    const TimePoint now = context_.clock->now();
    if (now >= deadline) refuse_late();
    for (Caller& caller : callers_)
      if (!joined(caller)) call(caller, now);
    accept_some(now);
    strangers_.remove_if([&](Stranger& stranger) {
      return (now >= stranger.give_up && !stranger.has_proved()) || !go_on(stranger);
    });
    if (!complete()) wait(deadline);
  }
  return std::move(joined_);
}

bool Join::complete() const {
  for (std::size_t rank = 0; rank < addresses_.size(); ++rank)
    if (is_peer(rank) && !is_joined(rank)) return false;
  return true;
}

void Join::wait(TimePoint deadline) {
  std::vector<pollfd> fds{{listener_.get(), POLLIN, 0}};
  TimePoint until = deadline;
  for (Caller& caller : callers_) {
    if (joined(caller)) continue;
    until = std::min(until, caller.greeting ? caller.give_up : caller.next_try);
    if (caller.greeting)
      fds.push_back(
          {caller.greeting->fd(), static_cast<short>(caller.connected ? POLLIN : POLLOUT), 0});
  }
  for (const Stranger& stranger : strangers_) {
    if (!stranger.has_proved()) until = std::min(until, stranger.give_up);
    fds.push_back({stranger.greeting.fd(), POLLIN, 0});
  }
  ::poll(fds.data(), fds.size(), std::min(rendezvous::poll_milliseconds(until), kLookAgainMs));
}

// --- to lower ranks ---

void Join::call(Caller& caller, TimePoint now) {
  if (caller.greeting) return go_on(caller, now);
  if (now < caller.next_try) return;
  const std::vector<SocketAddress>& places = address(caller.rank).places;
  if (places.empty()) {
    caller.obstacle = "it offers no address";
    caller.next_try = now + kConnectLimit;
    return;
  }
  const auto found = rendezvous::find_places(places[caller.place], now);  // numeric: at once
  std::string why = found.why_not;
  if (!found.places.empty()) {
    auto connecting = rendezvous::begin_tcp(found.places.front());
    why = connecting.why_not;
    if (connecting.socket) {
      caller.greeting.emplace(std::move(connecting.socket));
      caller.connected = false;
      caller.give_up = now + kConnectLimit;
      return;
    }
  }
  give_up(caller, why, now);
}

void Join::go_on(Caller& caller, TimePoint now) {
  if (!caller.connected && !connected(caller, now)) return;
  if (caller.greeting->stream().tls() != nullptr)
    encrypt(caller, now);
  else
    authenticate(caller, now);
}

// True: just now, and the handshake has begun.
bool Join::connected(Caller& caller, TimePoint now) {
  const int fd = caller.greeting->fd();
  pollfd writable{fd, POLLOUT, 0};
  if (::poll(&writable, 1, 0) <= 0) {
    if (now >= caller.give_up)
      give_up(caller, "does not answer: is the machine up, does a firewall drop packets?", now);
    return false;
  }
  if (const std::string why = rendezvous::why_not_connected(fd); !why.empty()) {
    give_up(caller, why, now);
    return false;
  }
  caller.connected = true;
  caller.give_up = now + kGreetingLimit;
  rendezvous::tune_data(fd, rendezvous::round_trip_time(fd));
  caller.proof.emplace(secret_,
                       Claim{Claim::Purpose::data, static_cast<std::uint32_t>(context_.rank),
                             static_cast<std::uint32_t>(caller.rank), address(caller.rank).identity,
                             context_.config->tls},
                       *context_.random);
  caller.awaited = sizeof(AuthChallenge);
  std::string output;
  std::string_view nothing;
  if (caller.proof->advance(nothing, output) == AuthInitiator::State::failed) {
    caller.refused = caller.proof->failure();
    give_up(caller, std::string(describe(caller.refused)), now);
    return false;
  }
  static_cast<void>(caller.greeting->write(output));  // where it fails, nothing comes either
  return true;
}

void Join::authenticate(Caller& caller, TimePoint now) {
  const bool open_there = caller.greeting->read(caller.awaited);
  std::string_view input = caller.greeting->input();
  if (input.size() < caller.awaited) {
    if (!open_there) return give_up(caller, "closed the connection", now);
    if (now >= caller.give_up) give_up(caller, "does not answer", now);
    return;
  }
  std::string output;
  const auto state = caller.proof->advance(input, output);
  caller.greeting->consume();
  if (state == AuthInitiator::State::failed) {
    caller.refused = caller.proof->failure();
    return give_up(caller, std::string(describe(caller.refused)), now);
  }
  if (!caller.greeting->write(output)) return give_up(caller, "closed the connection", now);
  caller.awaited = sizeof(AuthResult);
  if (state != AuthInitiator::State::done) return;
  if (tls_ == nullptr) return be_joined(caller, now);
  caller.greeting->stream().encrypt(tls_, Tls::Role::client, caller.proof->tls_key());
  encrypt(caller, now);
}

void Join::encrypt(Caller& caller, TimePoint now) {
  Tls& tls = *caller.greeting->stream().tls();
  switch (tls.shake_hands()) {
    case Tls::Handshake::done: return be_joined(caller, now);
    case Tls::Handshake::failed: return give_up(caller, tls.why(), now);
    case Tls::Handshake::going_on: break;
  }
  if (now >= caller.give_up) give_up(caller, "does not answer", now);
}

void Join::be_joined(Caller& caller, TimePoint now) {
  Frame open;
  open.kind = FrameKind::open;
  open.channel = static_cast<std::int32_t>(caller.use);
  if (!caller.greeting->write(bytes_of(open))) return give_up(caller, "closed the connection", now);
  joined(caller) = caller.greeting->take();
  caller.greeting.reset();
}

void Join::give_up(Caller& caller, std::string why, TimePoint now) {
  const std::vector<SocketAddress>& places = address(caller.rank).places;
  caller.obstacle = fmt::format("{} {}", to_text(places[caller.place]), why);
  caller.greeting.reset();
  caller.proof.reset();
  caller.next_try = now;
  check_refusals(caller);
  if (++caller.place < places.size()) return;
  caller.place = 0;
  caller.next_try = now + kPause;
  ++caller.rounds;
}

// One of a rank's places may lead to somebody else; when none has led to it for some rounds, it is
// not going to. Who has proved that he is that rank is believed at once.
void Join::check_refusals(const Caller& caller) const {
  const bool proved =
      caller.refused == AuthFailure::no_tls_here || caller.refused == AuthFailure::no_tls_there;
  if (caller.refused == AuthFailure::none || caller.refused == AuthFailure::not_tutti ||
      (caller.rounds < kRoundsRefused && !proved))
    return;
  throw Error(ErrorKind::mismatch, fmt::format("rank {} cannot connect to rank {}: {}",
                                               context_.rank, caller.rank, caller.obstacle));
}

// --- from higher ranks, and from anybody ---

void Join::accept_some(TimePoint now) {
  const Claim claim{Claim::Purpose::data, 0, static_cast<std::uint32_t>(context_.rank),
                    address(context_.rank).identity, context_.config->tls};
  for (std::size_t i = 0; i < kStrangers; ++i) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      const bool none_left = errno == EMFILE || errno == ENFILE || errno == ENOBUFS;
      if (!none_left || !make_room()) return;
      continue;
    }
    const bool full =
        strangers_.size() == kStrangers + joined_.data.size() + joined_.lifelines.size();
    if (full && !make_room()) return;
    rendezvous::tune_data(socket.get(), rendezvous::round_trip_time(socket.get()));
    strangers_.push_back({Greeting(std::move(socket)),
                          AuthAcceptor(secret_, claim, *context_.random), now + kGreetingLimit});
  }
}

// Cuts the oldest stranger that has not proved that it is a rank; false where all have.
bool Join::make_room() {
  const auto oldest = std::find_if(strangers_.begin(), strangers_.end(),
                                   [](const Stranger& one) { return !one.has_proved(); });
  if (oldest == strangers_.end()) return false;
  strangers_.erase(oldest);
  return true;
}

// False: it is to be cut, or has become a peer.
bool Join::go_on(Stranger& stranger) {
  for (;;) {
    const AuthAcceptor::State state = stranger.proof.state();
    if (state == AuthAcceptor::State::done)
      return tls_ == nullptr ? open(stranger) : encrypt(stranger);
    const std::size_t bytes =
        state == AuthAcceptor::State::hello ? sizeof(AuthHello) : sizeof(AuthProof);
    if (!stranger.greeting.read(bytes)) return false;
    std::string_view input = stranger.greeting.input();
    if (input.size() < bytes) return true;
    std::string output;
    const auto next = stranger.proof.advance(input, output);
    stranger.greeting.consume();
    const bool written = stranger.greeting.write(output);
    if (const AuthFailure failure = stranger.proof.failure(); failure != AuthFailure::none)
      throw Error(ErrorKind::mismatch, fmt::format("rank {}: rank {} {}", context_.rank,
                                                   stranger.proof.initiator(), describe(failure)));
    if (!written || next == AuthAcceptor::State::failed) return false;
    if (next == AuthAcceptor::State::done && tls_ != nullptr)
      stranger.greeting.stream().encrypt(tls_, Tls::Role::server, stranger.proof.tls_key());
  }
}

bool Join::encrypt(Stranger& stranger) {
  switch (stranger.greeting.stream().tls()->shake_hands()) {
    case Tls::Handshake::done: return open(stranger);
    case Tls::Handshake::failed: return false;
    case Tls::Handshake::going_on: break;
  }
  return true;
}

// An initiator that has given up meanwhile does not say so: what it says is that it has not.
bool Join::open(Stranger& stranger) {
  if (!stranger.greeting.read(sizeof(Frame))) return false;
  const auto frame = fixed_part<Frame>(stranger.greeting.input());
  if (!frame) return true;
  const std::uint32_t rank = stranger.proof.initiator();
  auto& joined =
      frame->channel == static_cast<std::int32_t>(Use::data) ? joined_.data : joined_.lifelines;
  const bool expected = rank < joined.size() && static_cast<int>(rank) > context_.rank &&
                        is_peer(rank) && !joined[rank];
  if (frame->kind == FrameKind::open && expected) joined[rank] = stranger.greeting.take();
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
  throw Error(ErrorKind::timeout,
              fmt::format("rank {}: not all connections were there before the start-up "
                          "deadline{}; see whether a firewall stands between the machines, and "
                          "name the interfaces that reach all of them in TUTTI_INTERFACES",
                          context_.rank, missing));
}

}  // namespace tutti::tcp
