#include "rendezvous/store/server_loop.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>

#include <tutti/error.hpp>

#include "common/descriptors.h"
#include "net/local_socket.h"
#include "net/tcp_socket.h"

namespace tutti::rendezvous {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{50};
constexpr int kAcceptsATurn = 64;  // a flood must not keep those who have joined waiting
// A guest that does not read its replies is not read from either.
constexpr std::size_t kMostQueuedBytes = 4 << 20;
constexpr std::size_t kOtherDescriptors = 256;  // The program's own.

std::shared_ptr<const TlsContext> context_for(const std::vector<Listener>& listeners) {
  for (const Listener& listener : listeners)
    if (listener.tls) return std::make_shared<const TlsContext>();
  return nullptr;
}

TimePoint now() { return std::chrono::steady_clock::now(); }

}  // namespace

ServerLoop::ServerLoop(const JobAddress& job, std::vector<Listener> listeners,
                       const ServerLimits& limits, int stop_fd)
    : job_(job),
      limits_(limits),
      stop_fd_(stop_fd),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      listeners_(std::move(listeners)),
      tls_(context_for(listeners_)),
      service_(
          [this](int fd, const Reply& reply, std::string_view bytes) { send(fd, reply, bytes); }),
      seats_(static_cast<std::size_t>(job.size)) {
  if (!epoll_)
    throw Error(ErrorKind::unavailable,
                fmt::format("the store gets no epoll: {}", std::strerror(errno)));
  need_descriptors(2 * seats_.size() + limits_.strangers + kOtherDescriptors, seats_.size(),
                   "rank 0", fmt::format("to serve the store of {} ranks", seats_.size()));
  watch(EPOLL_CTL_ADD, stop_fd_, EPOLLIN);
  for (const Listener& listener : listeners_) watch(EPOLL_CTL_ADD, listener.socket.get(), EPOLLIN);
}

void ServerLoop::run() {
  std::array<epoll_event, 64> events;
  while (!may_end()) {
    const auto deadline = next_deadline();
    const int ready = epoll_wait(epoll_.get(), events.data(), events.size(),
                                 deadline ? poll_milliseconds(*deadline) : -1);
    for (int i = 0; i < ready; ++i) handle(events[static_cast<std::size_t>(i)]);
    while (!strangers_.empty() && guests_.at(strangers_.front()).greet_by <= now())
      cut(strangers_.front());
    if (accept_again_ && *accept_again_ <= now()) {
      accept_again_.reset();
      watch_listeners(EPOLLIN);
    }
    assert(invariants());
  }
}

// In every turn of the loop: so nothing that grows with the number of ranks.
bool ServerLoop::invariants() const {
  return strangers_.size() + proved_ + taken_ == guests_.size() && taken_ <= seats_.size() &&
         proved_ <= seats_.size() && strangers_.size() + proved_ <= most_strangers();
}

void ServerLoop::watch(int operation, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) != 0)
    throw Error(ErrorKind::unavailable,
                fmt::format("the store cannot watch a socket: {}", std::strerror(errno)));
}

std::optional<TimePoint> ServerLoop::next_deadline() const {
  std::optional<TimePoint> next;
  const auto consider = [&](std::optional<TimePoint> other) {
    if (other && (!next || *other < *next)) next = other;
  };
  consider(accept_again_);
  consider(close_by_);
  if (!strangers_.empty()) consider(guests_.at(strangers_.front()).greet_by);
  return next;
}

void ServerLoop::handle(const epoll_event& event) {
  const int fd = event.data.fd;
  if (fd == stop_fd_) return begin_closing();
  try {
    if (const Listener* listener = listener_of(fd)) return accept_some(*listener);
    if (guests_.contains(fd)) serve(fd);  // else cut by an earlier event of this turn
  } catch (const std::exception&) {       // out of memory: the one that asked for it goes
    if (guests_.contains(fd)) return cut(fd);
    if (!accept_again_) pause_accepting();
  }
}

const Listener* ServerLoop::listener_of(int fd) const {
  for (const Listener& listener : listeners_)
    if (listener.socket.get() == fd) return &listener;
  return nullptr;
}

void ServerLoop::accept_some(const Listener& listener) {
  for (int i = 0; i < kAcceptsATurn; ++i) {
    Fd socket(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      admit(listener, std::move(socket));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      if (strangers_.empty()) return pause_accepting();
      cut(strangers_.front());
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;  // EAGAIN: nobody is left
    }
  }
}

void ServerLoop::watch_listeners(std::uint32_t events) {
  for (const Listener& listener : listeners_) watch(EPOLL_CTL_MOD, listener.socket.get(), events);
}

// A listener stays readable: without a pause the loop would spin.
void ServerLoop::pause_accepting() {
  watch_listeners(0);
  accept_again_ = now() + kAcceptPause;
}

void ServerLoop::admit(const Listener& listener, Fd socket) {
  if (!listener.secret && peer_of(socket.get()).uid != limits_.uid) return;  // closes it
  if (strangers_.size() + proved_ == most_strangers()) {
    if (strangers_.empty()) return;
    cut(strangers_.front());
  }
  const int fd = socket.get();
  watch(EPOLL_CTL_ADD, fd, EPOLLIN);
  Guest guest;
  if (listener.secret) {
    tune(fd);
    guest.handshake.emplace(*listener.secret,
                            Claim{Claim::Purpose::store, 0, 0, job_.job_hash(), listener.tls},
                            random_);
    guest.tls = listener.tls;
  }
  guest.connection = Connection(std::move(socket));
  guest.greet_by = now() + limits_.greeting;
  guest.stranger = strangers_.insert(strangers_.end(), fd);
  guests_.emplace(fd, std::move(guest));
}

void ServerLoop::serve(int fd) {
  Guest& guest = guests_.at(fd);
  const bool was_stranger = guest.rank < 0;
  bool keep = guest.connection.flush();
  if (keep && (guest.events & EPOLLIN) != 0) {
    keep = guest.connection.receive();
    // What came before the end is still done: a rank may set its last word and leave.
    if (was_stranger && (!shake_hands(guest) || !greet(guest))) keep = false;
    if (guest.rank >= 0 && !take_requests(guest)) keep = false;
  }
  if (!keep) return cut(fd);
  update_events(guest);
}

// False: it is to be cut.
bool ServerLoop::shake_hands(Guest& guest) {
  if (!guest.handshake) return true;
  if (guest.handshake->state() != AuthAcceptor::State::done && !authenticate(guest)) return false;
  return guest.handshake->state() != AuthAcceptor::State::done || encrypt(guest);
}

bool ServerLoop::authenticate(Guest& guest) {
  std::string_view input = guest.connection.received();
  const std::size_t before = input.size();
  std::string output;
  const auto state = guest.handshake->advance(input, output);
  guest.connection.consume(before - input.size());
  guest.connection.queue(output);
  const bool open = guest.connection.flush();
  if (state == AuthAcceptor::State::failed) {
    report_refusal(*guest.handshake);
    return false;
  }
  if (state == AuthAcceptor::State::done) believe(guest);
  if (state != AuthAcceptor::State::done || !guest.tls) return open;
  // Nothing is taken for encrypted that has come before.
  if (!open || !guest.connection.received().empty()) return false;
  guest.connection.stream().encrypt(tls_, Tls::Role::server, guest.handshake->tls_key());
  return true;
}

// The guest has proved that it knows the secret, so a flood of strangers no longer cuts it.
void ServerLoop::believe(Guest& guest) {
  if (proved_ == seats_.size()) return;
  strangers_.erase(guest.stranger);
  guest.proved = true;
  ++proved_;
}

// The guest has greeted, or is cut before it has.
void ServerLoop::strike_off(Guest& guest) {
  assert(guest.rank < 0);
  if (guest.proved)
    --proved_;
  else
    strangers_.erase(guest.stranger);
  guest.proved = false;
}

// One of the job's ranks that cannot join, ever: those that wait for it are told.
void ServerLoop::report_refusal(const AuthAcceptor& handshake) {
  const std::uint32_t rank = handshake.initiator();
  if (handshake.failure() == AuthFailure::none || rank >= seats_.size() ||
      seats_[rank].state != Seat::State::free)
    return;
  service_.refuse_waits(fmt::format("rank {} {}", rank, describe(handshake.failure())));
}

bool ServerLoop::encrypt(Guest& guest) {
  if (!guest.tls || guest.encrypted) return true;
  const Tls::Handshake how = guest.connection.stream().tls()->shake_hands();
  guest.encrypted = how == Tls::Handshake::done;
  // What has come behind the handshake may lie there already, and the socket say nothing.
  if (guest.encrypted) return guest.connection.receive();
  return how == Tls::Handshake::going_on;
}

// False: it is to be cut.
bool ServerLoop::greet(Guest& guest) {
  if (guest.handshake && guest.handshake->state() != AuthAcceptor::State::done) return true;
  if (guest.tls && !guest.encrypted) return true;
  const auto greeting = fixed_part<Greeting>(guest.connection.received());
  if (!greeting) return true;
  // It does not speak our language, or is not who it proved to be: no answer helps.
  if (greeting->magic != kStoreMagic) return false;
  if (guest.handshake && guest.handshake->initiator() != greeting->rank) return false;
  Answer answer;
  answer.verdict = judge(*greeting);
  answer.size = static_cast<std::uint32_t>(job_.size);
  if (answer.verdict == Verdict::rank_taken) answer.pid = seats_[greeting->rank].pid;
  guest.connection.queue(bytes_of(answer));
  if (!guest.connection.flush() || answer.verdict != Verdict::welcome) return false;

  guest.connection.consume(sizeof(Greeting));
  strike_off(guest);
  guest.rank = static_cast<int>(greeting->rank);
  const pid_t pid = guest.handshake ? 0 : peer_of(guest.connection.fd()).pid;
  seats_[greeting->rank] = {Seat::State::taken, pid};
  ++taken_;
  return true;
}

Verdict ServerLoop::judge(const Greeting& greeting) const {
  if (greeting.version != kStoreVersion) return Verdict::other_version;
  if (greeting.job != job_.job_hash()) return Verdict::other_job;
  if (greeting.size != seats_.size() || greeting.rank >= seats_.size()) return Verdict::other_size;
  const Seat& seat = seats_[greeting.rank];
  if (seat.state == Seat::State::taken) return Verdict::rank_taken;
  // A rank joins a store once. One that comes again wants the next store at this address, which its
  // rank 0 makes when this one has ended: here it would read stale keys.
  if (seat.state == Seat::State::left || close_by_) return Verdict::too_late;
  return Verdict::welcome;
}

bool ServerLoop::take_requests(Guest& guest) {
  std::string_view input = guest.connection.received();
  const std::size_t before = input.size();
  const bool sane = service_.take(guest.connection.fd(), input);
  guest.connection.consume(before - input.size());
  return sane;
}

void ServerLoop::send(int fd, const Reply& reply, std::string_view bytes) {
  Guest& guest = guests_.at(fd);
  guest.connection.queue(bytes_of(reply));
  guest.connection.queue(bytes);
  // One that is gone is cut when epoll says so: it may be the one being served.
  static_cast<void>(guest.connection.flush());
  update_events(guest);
}

void ServerLoop::update_events(Guest& guest) {
  const std::size_t queued = guest.connection.queued_bytes();
  const std::uint32_t events =
      (queued > kMostQueuedBytes ? 0u : EPOLLIN) | (queued == 0 ? 0u : EPOLLOUT);
  if (events == guest.events) return;
  watch(EPOLL_CTL_MOD, guest.connection.fd(), events);
  guest.events = events;
}

void ServerLoop::cut(int fd) {
  const auto place = guests_.find(fd);
  assert(place != guests_.end());
  if (place->second.rank < 0) {
    strike_off(place->second);
  } else {
    Seat& seat = seats_[static_cast<std::size_t>(place->second.rank)];
    assert(taken_ > 0 && seat.state == Seat::State::taken);
    seat.state = Seat::State::left;
    --taken_;
    service_.leave(fd);
  }
  guests_.erase(place);
}

void ServerLoop::begin_closing() {
  if (!close_by_) close_by_ = now() + limits_.linger;
  watch(EPOLL_CTL_MOD, stop_fd_, 0);
}

bool ServerLoop::may_end() const { return close_by_ && (taken_ == 0 || *close_by_ <= now()); }

}  // namespace tutti::rendezvous
