#include "rendezvous/store/server_loop.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <limits>

#include <tutti/error.hpp>

#include "common/descriptors.h"
#include "net/local_socket.h"
#include "net/tcp_socket.h"

namespace tutti::rendezvous {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{50};
constexpr std::chrono::milliseconds kMemoryPause{50};  // until what had no memory is tried again
// The greatest number of a newcomer.
constexpr std::uint32_t kLastNewcomer = std::numeric_limits<int>::max();
constexpr std::size_t kOtherDescriptors = 256;  // reserved for the program's own descriptors

std::shared_ptr<const net::TlsContext> context_for(const std::vector<Listener>& listeners) {
  for (const Listener& listener : listeners)
    if (listener.tls) return std::make_shared<const net::TlsContext>();
  return nullptr;
}

}  // namespace

ServerLoop::ServerLoop(const JobAddress& job, std::vector<Listener> listeners,
                       const ServerLimits& limits, int stop_fd, Standing standing)
    : job_(job),
      limits_(limits),
      stop_fd_(stop_fd),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      listeners_(std::move(listeners)),
      tls_(context_for(listeners_)),
      service_(
          [this](int fd, const Reply& reply, std::string_view bytes) { send(fd, reply, bytes); },
          [this](const Change& made) { change(made); }),
      pending_({static_cast<std::size_t>(job.size), limits.unauthenticated, limits.greeting},
               [this](Pending& pending) { return advance(pending); }),
      memberships_(static_cast<std::size_t>(job.size)),
      standing_(std::move(standing)),
      serving_(!standing_.primary) {
  if (!epoll_)
    throw Error(ErrorKind::unavailable,
                fmt::format("the store gets no epoll: {}", std::strerror(errno)));
  need_descriptors(2 * memberships_.size() + limits_.unauthenticated + kOtherDescriptors,
                   memberships_.size(), "rank 0",
                   fmt::format("to serve the store of {} ranks", memberships_.size()));
  watch(EPOLL_CTL_ADD, stop_fd_, EPOLLIN);
  for (const Listener& listener : listeners_) watch(EPOLL_CTL_ADD, listener.socket.get(), EPOLLIN);
  if (serving_) return;
  watch(EPOLL_CTL_ADD, standing_.primary->connection.fd(), EPOLLIN);
  if (standing_.primary->server_end)
    watch(EPOLL_CTL_ADD, standing_.primary->server_end.get(), EPOLLIN);
  standing_.primary->connection.queue(
      bytes_of(FromStandby{0, static_cast<std::uint32_t>(standing_.address.size()), 0}));
  standing_.primary->connection.queue(standing_.address);
  apply_changes();  // changes may have come with the answer to the greeting
}

void ServerLoop::run() {
  std::array<epoll_event, 64> events;
  while (!may_end()) {
    const auto deadline = next_deadline();
    const int ready = epoll_wait(epoll_.get(), events.data(), events.size(),
                                 deadline ? net::poll_milliseconds(*deadline) : -1);
    for (int i = 0; i < ready; ++i) handle(events[static_cast<std::size_t>(i)]);
    keep_house();
  }
}

// Does what is due, which includes the end of those whom there was no memory to serve. Where there
// is none for that either, it is done a little later.
void ServerLoop::keep_house() {
  const bool mends = mend_at_.has_value();
  if (mends && *mend_at_ > now()) return;
  mend_at_.reset();
  try {
    if (mends) part_with_broken();
    pending_.close_expired(now());
    watch_for_standby();
    if (!accept_again_ || *accept_again_ > now()) return;
    accept_again_.reset();
    watch_listeners(EPOLLIN);
  } catch (const std::exception&) {
    mend_at_ = now() + kMemoryPause;
  }
}

void ServerLoop::part_with_broken() {
  for (auto next = members_.begin(); next != members_.end();) {
    const auto& [fd, member] = *next++;
    if (member.broken) disconnect(fd);
  }
  if (standby_ && standby_->broken) drop_standby();
  if (!serving_) serve_primary(standing_.primary->connection.fd());
}

void ServerLoop::break_off(Member& member) {
  if (!member.broken) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, member.connection.fd(), nullptr);
    shutdown(member.connection.fd(), SHUT_RDWR);  // it hears of its end before there is memory
  }
  member.broken = true;
  mend_at_ = now();
}

void ServerLoop::break_off_standby() {
  standby_->broken = true;
  mend_at_ = now();
}

void ServerLoop::watch(int operation, int fd, std::uint32_t events) {
  assert(fd >= 0);
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) != 0)
    throw Error(ErrorKind::unavailable,
                fmt::format("the store cannot watch a socket: {}", std::strerror(errno)));
}

std::optional<TimePoint> ServerLoop::next_deadline() const {
  if (mend_at_) return mend_at_;
  std::optional<TimePoint> next;
  const auto consider = [&](std::optional<TimePoint> other) {
    if (other && (!next || *other < *next)) next = other;
  };
  consider(accept_again_);
  consider(close_by_);
  consider(pending_.next_deadline());
  consider(appoint_at_);
  consider(public_place_at_);
  if (standby_) consider(standby_->applies_by);
  return next;
}

void ServerLoop::handle(const epoll_event& event) {
  const int fd = event.data.fd;
  if (fd == stop_fd_) return begin_closing();
  try {
    if (is_primary(fd)) return serve_primary(fd);
    if (standby_ && standby_->connection.fd() == fd) return serve_standby();
    if (dismissing_.contains(fd)) return serve_dismissed(fd);
    if (const Listener* listener = listener_of(fd)) return accept_some(*listener);
    // A descriptor that is none of these was closed by an earlier event of this turn.
    if (pending_.contains(fd)) return pending_.serve(fd);
    if (members_.contains(fd)) serve(fd);
  } catch (const std::exception&) {  // out of memory: the pending that needed it is closed
    if (is_primary(fd)) mend_at_ = now() + kMemoryPause;
    if (standby_ && standby_->connection.fd() == fd) break_off_standby();
    if (listener_of(fd) != nullptr && !accept_again_) pause_accepting();
  }
}

const Listener* ServerLoop::listener_of(int fd) const {
  for (const Listener& listener : listeners_)
    if (listener.socket.get() == fd) return &listener;
  return nullptr;
}

void ServerLoop::accept_some(const Listener& listener) {
  const auto let_in = [&](Fd socket) { return admit(listener, std::move(socket)); };
  if (!pending_.accept(listener.socket, now(), let_in)) pause_accepting();
}

void ServerLoop::watch_listeners(std::uint32_t events) {
  for (const Listener& listener : listeners_) watch(EPOLL_CTL_MOD, listener.socket.get(), events);
}

// The listeners stay readable, so the loop would spin without a pause.
void ServerLoop::pause_accepting() {
  watch_listeners(0);
  accept_again_ = now() + kAcceptPause;
}

std::optional<ServerLoop::Pending> ServerLoop::admit(const Listener& listener, Fd socket) {
  assert(socket);
  Pending pending;
  if (listener.secret) {
    net::tune(socket.get());
    const net::Claim expected{net::Claim::Purpose::store, 0, 0, job_.job_hash(), listener.tls};
    pending.handshake.emplace(std::move(socket),
                              net::AuthAcceptor(*listener.secret, expected, random_),
                              listener.tls ? tls_ : nullptr);
  } else {
    if (net::peer_of(socket.get()).uid != limits_.uid) return std::nullopt;  // closes the socket
    pending.connection = net::Connection(std::move(socket));
  }
  watch(EPOLL_CTL_ADD, pending.fd(), EPOLLIN);
  return pending;
}

// Returns false if the pending is to be closed, or has become a member.
bool ServerLoop::advance(Pending& pending) {
  if (pending.handshake && pending.handshake->state() != Handshake::State::done) {
    const Handshake::State state = pending.handshake->advance();
    if (state == Handshake::State::failed) report_refusal(*pending.handshake);
    if (state != Handshake::State::done) return state != Handshake::State::failed;
  }
  // Bytes that arrived before the end of the stream are still processed, since a rank may set a key
  // and leave.
  const bool open = pending.stream().receive();
  return greet(pending) && open;
}

// If one of the job's ranks can never join, the ranks that wait for keys get an error. A connection
// with another secret may be a stranger's: it is counted for those who wait in vain.
void ServerLoop::report_refusal(const Handshake& refused) {
  const net::AuthAcceptor& proof = refused.proof();
  if (proof.refuses_secret() && serving_) {
    service_.set(kRefusedFromKey, net::peer_place(refused.fd()).socket_address().host);
    service_.set(kRefusedKey, fmt::format("{}", ++refused_));
  }
  const std::uint32_t rank = proof.initiator();
  if (proof.failure() == net::AuthFailure::none || rank >= memberships_.size() ||
      memberships_[rank].state != Membership::State::free)
    return;
  service_.refuse_waits(Status::mismatch,
                        fmt::format("rank {} {}", rank, describe(proof.failure())));
}

// Returns false if the pending is to be closed, or has become a member.
bool ServerLoop::greet(Pending& pending) {
  net::Connection& connection = pending.stream();
  const auto greeting = fixed_part<Greeting>(connection.received());
  if (!greeting) return true;
  // A client of another protocol, or one that greets as another rank than it authenticated as, gets
  // no answer.
  if (greeting->magic != kStoreMagic) return false;
  if (pending.handshake && pending.handshake->proof().initiator() != greeting->rank) return false;
  Answer answer;
  answer.verdict = judge(*greeting);
  if (answer.verdict == Verdict::rank_taken) {
    // The member that has the rank may have closed its connection. serve() notices that.
    serve(member_of(greeting->rank));
    answer.verdict = judge(*greeting);
  }
  answer.size = static_cast<std::uint32_t>(job_.size);
  if (answer.verdict == Verdict::rank_taken) answer.pid = memberships_[greeting->rank].pid;
  connection.queue(bytes_of(answer));
  if (!connection.flush() || answer.verdict != Verdict::welcome) return false;

  connection.consume(sizeof(Greeting));
  if ((greeting->flags & kStandsBy) != 0)
    attach_standby(std::move(connection), static_cast<int>(greeting->rank));
  else
    admit_member(pending, *greeting);
  return false;
}

void ServerLoop::admit_member(Pending& pending, const Greeting& greeting) {
  const int fd = pending.fd();
  const pid_t pid = pending.handshake ? 0 : net::peer_of(fd).pid;
  assert(!members_.contains(fd));
  has_served_ = true;
  const std::uint32_t rank = greeting.rank;
  Member member{std::move(pending.stream()), static_cast<int>(rank)};
  member.may_stand_by = (greeting.flags & kMayStandBy) != 0;
  member.other_machine = pending.handshake.has_value();
  member.here = pid == getpid();
  Member& joined = members_.emplace(fd, std::move(member)).first->second;
  if (!is_newcomer(rank)) memberships_[rank] = {Membership::State::taken, pid};
  try {
    service_.enter(fd, greeting.client, greeting.flags);
  } catch (const std::exception&) {
    return break_off(joined);
  }
  if (standby_ && standby_->in_step && members_.at(fd).may_stand_by) {
    const std::string& address = standby_->address;
    deliver(fd, {0, Status::successor, static_cast<std::uint32_t>(address.size())}, address);
  }
  serve(fd);  // requests, or the end of the stream, may have arrived with the greeting
  if (!standby_ && !appoint_at_) appoint_at_ = now();
}

int ServerLoop::member_of(std::uint32_t rank) const {
  const auto place = std::find_if(members_.begin(), members_.end(), [&](const auto& member) {
    return static_cast<std::uint32_t>(member.second.rank) == rank;
  });
  assert(place != members_.end());
  return place->first;
}

Verdict ServerLoop::judge(const Greeting& greeting) const {
  if (greeting.version != kStoreVersion) return Verdict::other_version;
  if (greeting.job != job_.job_hash()) return Verdict::other_job;
  if ((greeting.flags & kReturns) != 0 && service_.has_parted_with(greeting.client))
    return Verdict::parted;
  if (!serving_) return Verdict::too_late;
  if ((greeting.flags & kStandsBy) != 0) return judge_standby(greeting);
  if (took_over_) return judge_at_successor(greeting);
  // One without a rank leaves and comes as often as it likes: no key is its own.
  if (greeting.rank <= kLastNewcomer && is_newcomer(greeting.rank))
    return close_by_ ? Verdict::too_late : Verdict::welcome;
  if (greeting.size != memberships_.size() || greeting.rank >= memberships_.size())
    return Verdict::other_size;
  const Membership& membership = memberships_[greeting.rank];
  if (membership.state == Membership::State::taken) return Verdict::rank_taken;
  // A rank joins a store once. One that connects again wants the next store at this address, which
  // its rank 0 creates when this one has ended; in this one it would read stale keys.
  if (membership.state == Membership::State::left || close_by_) return Verdict::too_late;
  return Verdict::welcome;
}

Verdict ServerLoop::judge_standby(const Greeting& greeting) const {
  const bool wanted = !standby_ && !standing_.address.empty() && !close_by_ &&
                      greeting.rank != static_cast<std::uint32_t>(standing_.rank) &&
                      greeting.rank <= kLastNewcomer;
  return wanted ? Verdict::welcome : Verdict::too_late;
}

// Processes come here that had joined the server before this one, however often, and newcomers.
Verdict ServerLoop::judge_at_successor(const Greeting& greeting) const {
  if (close_by_ || greeting.rank > kLastNewcomer) return Verdict::too_late;
  if (is_newcomer(greeting.rank)) return Verdict::welcome;
  if (greeting.rank >= memberships_.size()) return Verdict::other_size;
  if ((greeting.flags & kReturns) == 0) return Verdict::too_late;
  return memberships_[greeting.rank].state == Membership::State::taken ? Verdict::rank_taken
                                                                       : Verdict::welcome;
}

void ServerLoop::serve(int fd) {
  Member& member = members_.at(fd);
  assert(is_newcomer(static_cast<std::uint32_t>(member.rank)) ||
         memberships_[static_cast<std::size_t>(member.rank)].state == Membership::State::taken);
  if (member.broken) return;
  try {
    bool keep = member.connection.flush();
    if (keep && (member.events & EPOLLIN) != 0) keep = member.connection.receive();
    if (!take_requests(member)) keep = false;
    if (!keep) return disconnect(fd);
    if (!member.broken) update_events(member);
  } catch (const std::exception&) {
    break_off(member);
  }
}

// Returns false if the member violates the protocol. Requests for whose replies there is no room
// are taken once others have left.
bool ServerLoop::take_requests(Member& member) {
  std::string_view input = member.connection.received();
  const std::size_t before = input.size();
  const bool idle = service_.is_idle(member.connection.fd());
  const bool sane = service_.take(member.connection.fd(), input, [&] { return has_room(member); });
  member.connection.consume(before - input.size());
  const bool is_rank_now = idle && !service_.is_idle(member.connection.fd());
  if (is_rank_now && !standby_ && !appoint_at_) appoint_at_ = now();
  return sane;
}

// A reply waits until the standby has all on which it may depend. Where there is no memory for it,
// the member is disconnected, since what it has asked for may be done.
void ServerLoop::send(int fd, const Reply& reply, std::string_view bytes) {
  Member& member = members_.at(fd);
  try {
    if (member.broken) return;
    if (!standby_ || !standby_->in_step_at || standby_->applied == last_change_)
      return queue(member, reply, bytes);
    held_.push_back({last_change_, now(), fd, reply, std::string(bytes)});
    member.held_bytes += sizeof reply + bytes.size();
  } catch (const std::exception&) {
    break_off(member);
  }
}

void ServerLoop::deliver(int fd, const Reply& reply, std::string_view bytes) {
  Member& member = members_.at(fd);
  try {
    if (!member.broken) queue(member, reply, bytes);
  } catch (const std::exception&) {
    break_off(member);
  }
}

void ServerLoop::queue(Member& member, const Reply& reply, std::string_view bytes) {
  // Behind older replies it is sent by serve(), which then takes the requests that had no room.
  const bool first = member.connection.queued_bytes() == 0;
  member.connection.queue(bytes_of(reply), bytes);
  // A failed connection is closed later, when epoll reports it: serve() may be using this member.
  if (first) static_cast<void>(member.connection.flush());
  update_events(member);
}

void ServerLoop::update_events(Member& member) {
  const std::size_t queued = member.connection.queued_bytes();
  const std::uint32_t events = (has_room(member) ? EPOLLIN : 0u) | (queued == 0 ? 0u : EPOLLOUT);
  if (events == member.events) return;
  watch(EPOLL_CTL_MOD, member.connection.fd(), events);
  member.events = events;
}

// Where there is no memory for what others are told of it, it throws, and is to be called again.
void ServerLoop::disconnect(int fd) {
  const auto place = members_.find(fd);
  assert(place != members_.end());
  const int rank = place->second.rank;
  const bool newcomer = is_newcomer(static_cast<std::uint32_t>(rank));
  assert(newcomer ||
         memberships_[static_cast<std::size_t>(rank)].state == Membership::State::taken);
  const bool took_part = newcomer || service_.has_taken_part(fd);
  service_.leave(fd);
  // A rank that starts publishes what the others need before it asks for what they publish.
  if (!took_part)
    service_.refuse_waits(
        Status::lost,
        fmt::format("rank {} has left the store before it told the others of itself: it has ended, "
                    "or its start-up has failed; see what it says, and start the job again",
                    rank));
  if (!newcomer) memberships_[static_cast<std::size_t>(rank)].state = Membership::State::left;
  members_.erase(place);
  if (rank == last_appointed_ && appoint_at_) appoint_at_ = now();
  std::erase_if(held_, [fd](const Held& held) { return held.fd == fd; });
}

void ServerLoop::begin_closing() {
  if (!close_by_) close_by_ = now() + limits_.linger;
  watch(EPOLL_CTL_MOD, stop_fd_, 0);
}

bool ServerLoop::may_end() const {
  if (limits_.once && has_served_ && members_.empty()) return true;
  if (dismissed_ || !close_by_ || *close_by_ <= now()) return dismissed_ || close_by_;
  return std::all_of(members_.begin(), members_.end(),
                     [this](const auto& member) { return service_.is_idle(member.first); });
}

}  // namespace tutti::rendezvous
