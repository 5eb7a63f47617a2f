#include "transport/shm/join.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include <tutti/error.hpp>

#include "common/descriptors.h"
#include "net/local_socket.h"

namespace tutti::shm {

struct Join::Greeting {
  static constexpr std::uint64_t kMagic = 0x7475747469736d31;  // "tuttism1"
  static constexpr std::uint32_t kVersion = 2;
  static constexpr std::uint32_t kHasBell = 1;
  static constexpr std::uint32_t kHasMembarrier = 2;

  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::int32_t rank = 0;
  Identity from;
  Identity to;
  std::uint32_t powers = 0;
  std::uint32_t zero = 0;
};

namespace {

using std::chrono::milliseconds;

// The pause after something could not be sent or was not answered; it doubles each time.
constexpr milliseconds kFirstCallPause{5};
constexpr milliseconds kLongestCallPause{200};
// The most calls under way at a time. Each carries descriptors, which count against the user's
// limit of descriptors in flight; and if all others called a rank at once, its queue of callers
// would overflow.
constexpr int kMostCalls = 32;
// The number of missing higher ranks of which a rank checks at a time whether they still listen,
// where none has joined since the last time: each check costs the other rank a connection.
constexpr int kLooksAtOnce = 4;
static_assert(kFirstCallPause < kLongestCallPause && kMostCalls >= 1);

// The limit for a greeting. A rank sends its greeting right after it connects, but may have to wait
// for descriptors to send with it, so only the deadline of the start-up counts.
constexpr std::chrono::hours kPatience{24};

bool is_same_user(const Fd& socket) { return net::peer_of(socket.get()).uid == geteuid(); }

// Whether `fd` is a non-blocking eventfd. Writing to anything else could block, or do harm.
bool is_bell(const Fd& fd) {
  std::array<char, 64> target{};
  const std::string link = fmt::format("/proc/self/fd/{}", fd.get());
  if (readlink(link.c_str(), target.data(), target.size() - 1) < 0) return false;
  const int flags = fcntl(fd.get(), F_GETFL);
  return std::strcmp(target.data(), "anon_inode:[eventfd]") == 0 && (flags & O_NONBLOCK) != 0;
}

}  // namespace

Fd listen_at(const Address& address) {
  Fd listener = net::listen_local(address.socket_name(), net::LocalKind::packets);
  if (!listener)
    throw Error(ErrorKind::unavailable,
                fmt::format("another process listens at @{}", address.socket_name()));
  return listener;
}

Join::Join(const TransportContext& context, std::span<const Address> addresses, const Fd& listener,
           int status_page)
    : context_(context),
      addresses_(addresses),
      listener_(listener),
      status_page_(status_page),
      peers_(addresses.size()),
      missing_(0),
      most_calls_(kMostCalls),
      pause_(kFirstCallPause),
      look_times_(context.size, context.clock->now()),
      missing_then_(missing_),
      next_looked_at_(context.rank + 1),
      pending_({.expected = peers_.size(), .patience = kPatience},
               [this](Guest& guest) { return hear_guest(guest.socket); }) {
  assert(addresses.size() == static_cast<std::size_t>(context.size));
  for (int rank = 0; rank < context.size; ++rank) {
    if (addresses[rank].identity == Identity())
      peers_[rank].state = Peer::State::joined;  // This rank neither calls it nor waits for it.
    else if (rank != context.rank)
      ++missing_;
  }
  missing_then_ = missing_;
  assert(is_sound());
}

// Whether the numbers of calls and of missing ranks are those of the ranks' states, and each rank
// has the connection that its state says.
bool Join::is_sound() const {
  int calls = 0, missing = 0;
  for (int rank = 0; rank < context_.size; ++rank) {
    const Peer& peer = peers_[rank];
    const bool calling = peer.state == Peer::State::called || peer.state == Peer::State::greeted;
    if (calling) ++calls;
    if (rank != context_.rank && peer.state != Peer::State::joined) ++missing;
    if (calling != static_cast<bool>(peer.call) || (calling && rank >= context_.rank)) return false;
    if (peer.state == Peer::State::heard && (!peer.link.socket || rank <= context_.rank))
      return false;
  }
  return calls == calls_ && missing == missing_ && calls_ <= kMostCalls;
}

std::vector<Link> Join::run(TimePoint deadline) {
  const TimePoint start = context_.clock->now();
  while (missing_ > 0) {
    assert(is_sound());
    const TimePoint now = context_.clock->now();
    if (now >= deadline)
      throw Error(
          ErrorKind::timeout,
          fmt::format("rank {} of {} waited {:.1f} s to join the others over shared memory; these "
                      "never came: {}; see whether they hang",
                      context_.rank, context_.size,
                      std::chrono::duration<double>(now - start).count(), missing_ranks()));
    speak(now);
    if (look_times_.due(now)) look_for_missing();
    wait_and_hear(std::min(deadline, next_event()));
  }
  assert(is_sound() && calls_ == 0);
  std::vector<Link> links;
  for (Peer& peer : peers_) links.push_back(std::move(peer.link));
  return links;
}

// Sends what can be sent now: first answers, then calls. It calls the nearest lower rank first,
// since otherwise all ranks would begin with rank 0.
void Join::speak(TimePoint now) {
  if (now < speak_again_) return;
  bool all = true;
  for (int rank = context_.rank + 1; all && rank < context_.size; ++rank)
    if (peers_[rank].state == Peer::State::heard) all = answer(rank);
  for (int rank = context_.rank - 1; all && rank >= 0; --rank) {
    if (peers_[rank].state == Peer::State::absent && calls_ < most_calls_) all = call(rank);
    if (peers_[rank].state == Peer::State::called) all = greet_called(rank);
  }
  if (!all) back_off(now);
}

// Handles that a queue of callers is full, or that the user has as many descriptors in flight as
// are allowed. From now on fewer calls are made at a time, and the next ones later, so that the
// others can read what was sent.
void Join::back_off(TimePoint now) {
  most_calls_ = std::max(1, most_calls_ / 2);
  speak_again_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestCallPause);
  assert(most_calls_ >= 1 && most_calls_ <= kMostCalls);
}

// Connects to a lower rank; returns false where its queue of callers is full now.
bool Join::call(int rank) {
  assert(rank < context_.rank && peers_[rank].state == Peer::State::absent && calls_ < most_calls_);
  net::LocalConnecting connecting = connect_to(rank);
  if (connecting.may_try_again()) return false;
  if (connecting.nobody_listens()) gone(rank);
  if (!connecting.socket)
    throw Error(ErrorKind::unavailable,
                fmt::format("rank {} cannot connect to {}: {}", context_.rank, named(rank),
                            std::strerror(connecting.error)));
  if (!is_same_user(connecting.socket))
    throw Error(ErrorKind::unavailable,
                fmt::format("rank {} found another user's process where {} should be",
                            context_.rank, named(rank)));
  peers_[rank].call = std::move(connecting.socket);
  peers_[rank].state = Peer::State::called;
  ++calls_;
  return true;
}

// Sends this rank's greeting to a rank that it has called; returns false where that cannot be done
// now.
bool Join::greet_called(int rank) {
  Peer& peer = peers_[rank];
  assert(rank < context_.rank && peer.state == Peer::State::called && peer.call);
  const Sent sent = greet(peer.call, rank);
  if (sent == Sent::done) peer.state = Peer::State::greeted;
  if (sent == Sent::broken) hang_up(peer);
  return sent == Sent::done;
}

// Answers a rank that has greeted this one; returns false where that cannot be done now.
bool Join::answer(int rank) {
  Peer& peer = peers_[rank];
  assert(rank > context_.rank && peer.state == Peer::State::heard && peer.link.socket);
  const Sent sent = greet(peer.link.socket, rank);
  if (sent == Sent::done) be_joined(peer);
  if (sent == Sent::broken) {  // The peer calls again, or is found to have ended.
    peer.link = {};
    peer.state = Peer::State::absent;
  }
  return sent != Sent::later;
}

// Handles that the peer has closed the call, perhaps to make room for other callers. If the peer
// has ended, the next call finds that nobody listens.
void Join::hang_up(Peer& peer) {
  assert(calls_ > 0 && peer.call && peer.state != Peer::State::joined);
  peer.call.reset();
  peer.state = Peer::State::absent;
  ++peer.unanswered;
  --calls_;
}

// Checks whether missing higher ranks still listen. One that does not has ended or given up, and
// will not call this rank.
void Join::look_for_missing() {
  if (context_.check) context_.check();
  if (std::exchange(missing_then_, missing_) != missing_) return;
  const int higher = context_.size - 1 - context_.rank;
  for (int i = 0, looks = 0; i < higher && looks < kLooksAtOnce; ++i) {
    const int rank = next_looked_at_;
    assert(rank > context_.rank && rank < context_.size);
    next_looked_at_ = rank + 1 < context_.size ? rank + 1 : context_.rank + 1;
    if (peers_[rank].state != Peer::State::absent) continue;
    ++looks;
    if (connect_to(rank).nobody_listens()) gone(rank);
  }
}

TimePoint Join::next_event() const {
  const auto waits = [this](const Peer& peer) {
    const bool lower = &peer < &peers_[context_.rank];
    return peer.state == Peer::State::called || peer.state == Peer::State::heard ||
           (lower && peer.state == Peer::State::absent && calls_ < most_calls_);
  };
  const bool any = std::any_of(peers_.begin(), peers_.end(), waits);
  return any ? std::min(look_times_.next(), speak_again_) : look_times_.next();
}

void Join::wait_and_hear(TimePoint until) {
  std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
  std::vector<int> guests;
  pending_.for_each_fd([&](int fd) { guests.push_back(fd); });
  for (const int guest : guests) polled.push_back({guest, POLLIN, 0});
  for (const Peer& peer : peers_)
    if (peer.call) polled.push_back({peer.call.get(), POLLIN, 0});
  const auto left = std::chrono::ceil<milliseconds>(until - context_.clock->now());
  const int timeout = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  if (poll(polled.data(), polled.size(), timeout) <= 0) return;

  auto next = polled.begin() + 1;
  for (const int guest : guests)
    if ((next++)->revents != 0) pending_.serve(guest);
  for (int rank = 0; rank < context_.rank; ++rank)
    if (peers_[rank].call && (next++)->revents != 0) hear_answer(rank);
  assert(next == polled.end());
  const auto admit = [](Fd socket) {
    return is_same_user(socket) ? std::optional(Guest{std::move(socket)}) : std::nullopt;
  };
  if (polled.front().revents != 0 && !pending_.accept(listener_, context_.clock->now(), admit))
    refuse_files();
}

net::LocalConnecting Join::connect_to(int rank) const {
  try {
    return net::connect_local(addresses_[rank].socket_name(), net::LocalKind::packets);
  } catch (const Error&) {
    if (!Fd(fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0))) refuse_files();  // no descriptor is left
    throw;
  }
}

// Throws the error of a rank that has no descriptor left.
void Join::refuse_files() const {
  const auto others =
      std::count_if(addresses_.begin(), addresses_.end(),
                    [](const Address& each) { return each.identity != Identity(); }) -
      1;
  throw Error(ErrorKind::unavailable,
              fmt::format("rank {} of {} has too many open files to join the others over shared "
                          "memory: it needs {} descriptors for them, four for each, beside those "
                          "that are open otherwise, and may have {} in all; raise the limit "
                          "(ulimit -n)",
                          context_.rank, context_.size, 4 * others, allow_descriptors(0)));
}

// Returns false where the caller has been dropped, or has become a rank's connection.
bool Join::hear_guest(Fd& socket) {
  Greeting greeting;
  Descriptors descriptors;
  const Received received = receive_packet(socket, greeting, descriptors);
  if (received == Received::nothing) return true;
  if (received == Received::closed) return false;  // a rank that checked whether this one listens
  const bool heard = received == Received::packet || received == Received::cut;
  const auto rank = heard ? rank_of(greeting) : std::nullopt;
  if (!rank || *rank <= context_.rank || peers_[*rank].state == Peer::State::joined) {
    if (context_.log != nullptr)
      context_.log->write(LogLevel::info, "rank {}: dropped a caller that is no rank of this job",
                          context_.rank);
    return false;
  }
  link(*rank, std::move(socket), std::move(descriptors), greeting);
  peers_[*rank].state = Peer::State::heard;
  const TimePoint now = context_.clock->now();
  if (now >= speak_again_ && !answer(*rank)) back_off(now);
  return false;
}

void Join::hear_answer(int rank) {
  assert(rank < context_.rank && peers_[rank].call && calls_ > 0);
  Greeting greeting;
  Descriptors descriptors;
  const Received received = receive_packet(peers_[rank].call, greeting, descriptors);
  if (received == Received::nothing) return;
  if (received == Received::closed) {
    hang_up(peers_[rank]);
    return back_off(context_.clock->now());
  }
  if (received == Received::garbage || rank_of(greeting) != rank)
    throw Error(ErrorKind::mismatch,
                fmt::format("{} answered rank {} with something else than a greeting: do all "
                            "ranks run the same version?",
                            named(rank), context_.rank));
  link(rank, std::move(peers_[rank].call), std::move(descriptors), greeting);
  --calls_;
  be_joined(peers_[rank]);
}

std::optional<int> Join::rank_of(const Greeting& greeting) const {
  const bool known = greeting.magic == Greeting::kMagic && greeting.version == Greeting::kVersion &&
                     greeting.rank >= 0 && greeting.rank < context_.size &&
                     greeting.rank != context_.rank &&
                     greeting.from == addresses_[greeting.rank].identity &&
                     greeting.to == addresses_[context_.rank].identity;
  return known ? std::optional<int>(greeting.rank) : std::nullopt;
}

Sent Join::greet(const Fd& socket, int rank) const {
  static_assert(sizeof(Greeting) == 56 && offsetof(Greeting, from) == 16 &&
                offsetof(Greeting, powers) == 48);
  assert(rank != context_.rank && status_page_ >= 0);
  Greeting greeting;
  greeting.rank = context_.rank;
  greeting.from = addresses_[context_.rank].identity;
  greeting.to = addresses_[rank].identity;
  const bool has_bell = context_.doorbell != nullptr;
  greeting.powers =
      (has_bell ? Greeting::kHasBell : 0) | (context_.membarrier() ? Greeting::kHasMembarrier : 0);
  const std::array<int, 2> fds{status_page_, has_bell ? context_.doorbell->fd() : -1};
  return send_packet(socket, greeting, std::span(fds).first(has_bell ? 2 : 1));
}

void Join::link(int rank, Fd socket, Descriptors descriptors, const Greeting& greeting) {
  const bool has_bell = (greeting.powers & Greeting::kHasBell) != 0;
  if (descriptors.count < (has_bell ? 2u : 1u)) refuse_files();
  if (has_bell && !is_bell(descriptors.fds[1]))
    throw Error(ErrorKind::corrupt, fmt::format("{} sent a doorbell that is none", named(rank)));
  Link& link = peers_[rank].link;
  assert(rank != context_.rank && peers_[rank].state != Peer::State::joined && socket);
  link.pid = net::peer_of(socket.get()).pid;
  // The process id may belong to another process by now; the pidfd of the socket cannot.
  link.process = net::watch_peer(socket.get());
  link.socket = std::move(socket);
  link.status_page = std::move(descriptors.fds[0]);
  link.bell = std::move(descriptors.fds[1]);
  link.membarrier = (greeting.powers & Greeting::kHasMembarrier) != 0;
}

void Join::be_joined(Peer& peer) {
  assert(missing_ > 0 && peer.state != Peer::State::joined && peer.link.socket && !peer.call);
  peer.state = Peer::State::joined;
  most_calls_ = std::min(kMostCalls, most_calls_ + 1);
  pause_ = kFirstCallPause;
  --missing_;
}

std::string Join::missing_ranks() const {
  std::string missing;
  int not_called = 0;
  for (int rank = 0; rank < context_.size; ++rank) {
    const Peer& peer = peers_[rank];
    if (rank == context_.rank || peer.state == Peer::State::joined) continue;
    if (rank < context_.rank && peer.state == Peer::State::absent && peer.unanswered == 0) {
      ++not_called;
      continue;
    }
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", named(rank));
    if (peer.unanswered > 0)
      missing += fmt::format(", which has closed {} calls unanswered", peer.unanswered);
  }
  if (not_called > 0)
    missing += fmt::format("; {} lower ranks were to be called after these", not_called);
  return missing;
}

std::string Join::named(int rank) const {
  return fmt::format("rank {} (process {})", rank, addresses_[rank].process);
}

void Join::gone(int rank) const {
  throw Error(ErrorKind::peer_lost,
              fmt::format("{} has ended or given up before rank {} could join it: its own message "
                          "says why; start the job again",
                          named(rank), context_.rank));
}

}  // namespace tutti::shm
