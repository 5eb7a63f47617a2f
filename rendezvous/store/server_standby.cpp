// The part of the server's loop that concerns the server for which it stands by, and the one that
// stands by for it.
#include <algorithm>
#include <cassert>
#include <string>
#include <tuple>
#include <utility>

#include <tutti/error.hpp>

#include "rendezvous/store/replication.h"
#include "rendezvous/store/server_loop.h"

namespace tutti::rendezvous {
namespace {

// A rank that is appointed to stand by and does not come is passed over after this time. A rank
// hears of its appointment at its next request.
constexpr std::chrono::seconds kAppointmentLimit{10};
// A standby that still copies the store has this time to apply a change. No reply waits for it.
constexpr std::chrono::milliseconds kCopyLimit{2000};
constexpr std::chrono::milliseconds kPublicPlacePause{500};  // between two attempts to open it

}  // namespace

bool ServerLoop::is_primary(int fd) const {
  return standing_.primary && (fd == standing_.primary->server_end.get() ||
                               (!serving_ && fd == standing_.primary->connection.fd()));
}

void ServerLoop::serve_primary(int fd) {
  const bool ended = fd == standing_.primary->server_end.get();
  if (!serving_) {
    bool open = true;
    // Changes for which there was no memory before are applied although nothing more comes.
    for (bool any = true; open && any;) {
      const std::size_t before = standing_.primary->connection.received().size();
      open = standing_.primary->connection.receive();
      any = standing_.primary->connection.received().size() != before;
      apply_changes();
    }
    if (dismissed_) return;
    if (!open || ended) take_over();
  }
  if (ended) take_public_place();
}

void ServerLoop::apply_changes() {
  net::Connection& primary = standing_.primary->connection;
  std::uint64_t applied = 0;
  try {
    while (const auto received = decode(primary.received())) {
      if (received->change.kind == Change::Kind::dismissed)
        dismissed_ = true;
      else
        service_.apply(received->change);
      applied = received->number;
      primary.consume(received->bytes);
    }
  } catch (const Error&) {
    dismissed_ = true;  // It is no server of a store that could be followed.
  }
  if (applied != 0) primary.queue(bytes_of(FromStandby{applied, 0, 0}));
  // The end of the connection is noticed when it is read. An acknowledgement fits into the
  // socket's memory, since the primary reads them all.
  static_cast<void>(primary.flush());
}

void ServerLoop::take_over() {
  assert(!serving_ && !dismissed_);
  watch(EPOLL_CTL_DEL, standing_.primary->connection.fd(), 0);
  standing_.primary->connection = net::Connection();
  serving_ = true;
  took_over_ = true;
  if (!standing_.primary->server_end) try_public_place();  // its end is not noticed otherwise
}

void ServerLoop::take_public_place() {
  watch(EPOLL_CTL_DEL, standing_.primary->server_end.get(), 0);
  standing_.primary->server_end = Fd();
  try_public_place();
}

// Opens what is free, and tries the rest again: a child that the primary forked has its sockets.
void ServerLoop::try_public_place() {
  public_place_at_.reset();
  if (close_by_) return;
  std::erase_if(standing_.public_place, [this](const auto& open) {
    try {
      Listener listener = open();
      if (!listener.socket) return false;
      watch(EPOLL_CTL_ADD, listener.socket.get(), EPOLLIN);
      listeners_.push_back(std::move(listener));
      return true;
    } catch (const std::exception&) {  // The port is in use, or there is no memory.
      return false;
    }
  });
  if (!standing_.public_place.empty()) public_place_at_ = now() + kPublicPlacePause;
}

void ServerLoop::watch_for_standby() {
  if (standby_ && standby_->applies_by && *standby_->applies_by <= now()) drop_standby();
  if (appoint_at_ && *appoint_at_ <= now()) appoint();
  if (!public_place_at_ || *public_place_at_ > now()) return;
  // A server to which nobody comes is not the one that the others have followed.
  if (members_.empty())
    public_place_at_ = now() + kPublicPlacePause;
  else
    try_public_place();
}

// Appoints a rank to stand by: one on another machine if there is one, and else the one with the
// lowest number; after one that did not come, the next.
void ServerLoop::appoint() {
  appoint_at_.reset();
  if (standing_.address.empty() || !serving_ || standby_ || close_by_) return;
  // At the start all ranks come first, so that the choice is the best one. A server without ranks
  // does not know how many come.
  const bool all_here =
      limits_.only_newcomers ||
      std::none_of(memberships_.begin(), memberships_.end(), [](const Membership& membership) {
        return membership.state == Membership::State::free;
      });
  if (!all_here && !took_over_) return;
  const Member* best = nullptr;
  const auto worse = [this](const Member& member) {
    return std::tuple(member.rank <= last_appointed_, !member.other_machine, member.rank);
  };
  for (const auto& [fd, member] : members_)
    if (member.may_stand_by && !member.here && !service_.is_idle(fd) &&
        member.rank != standing_.rank && (best == nullptr || worse(member) < worse(*best)))
      best = &member;
  if (best == nullptr) return;
  last_appointed_ = best->rank;
  appoint_at_ = now() + kAppointmentLimit;
  const std::string& own = standing_.address;
  deliver(best->connection.fd(), {0, Status::appointed, static_cast<std::uint32_t>(own.size())},
          own);
}

void ServerLoop::attach_standby(net::Connection connection, int rank) {
  assert(!standby_);
  appoint_at_.reset();
  last_appointed_ = -1;
  standby_.emplace(StandsBy{std::move(connection), rank});
  standby_->applied = last_change_;
  try {
    service_.copy([this](const Change& change) {
      standby_->connection.queue(encode(change, ++last_change_));
    });
    standby_->copied = last_change_;
    await_standby();
    serve_standby();
  } catch (const std::exception&) {
    break_off_standby();
  }
}

// No reply waits for longer than kApplyLimit, however many changes there are before its own.
void ServerLoop::await_standby() {
  const auto oldest = std::find_if(held_.begin(), held_.end(), [this](const Held& held) {
    return held.number > standby_->applied;
  });
  const TimePoint from = oldest == held_.end() ? now() : oldest->since;
  standby_->applies_by = standby_->in_step_at ? from + kApplyLimit : now() + kCopyLimit;
}

// A standby that lacks a change is never in step, and is dismissed.
void ServerLoop::change(const Change& change) {
  if (!standby_) return;
  ++last_change_;
  try {
    standby_->connection.queue(encode(change, last_change_));
    if (!standby_->applies_by) await_standby();
    flush_standby();
  } catch (const std::exception&) {
    break_off_standby();
  }
}

void ServerLoop::flush_standby() {
  static_cast<void>(standby_->connection.flush());  // a failure is noticed when it is read
  const std::uint32_t events = EPOLLIN | (standby_->connection.queued_bytes() == 0 ? 0u : EPOLLOUT);
  if (events != standby_->events)
    watch(EPOLL_CTL_MOD, standby_->connection.fd(), standby_->events = events);
}

void ServerLoop::serve_standby() {
  if (standby_->broken) return;
  const bool open = standby_->connection.receive();
  if (!hear_standby() || !open) return drop_standby();
  flush_standby();
  StandsBy& its = *standby_;
  if (!its.in_step_at && !its.address.empty() && its.applied >= its.copied) {
    its.in_step_at = last_change_;
    if (its.applied < last_change_) await_standby();
  }
  if (!its.in_step && its.in_step_at && its.applied >= *its.in_step_at) {
    its.in_step = true;
    tell_successor(standby_->address);
    // Whoever reads this key has been told of the standby before.
    const bool newcomer = is_newcomer(static_cast<std::uint32_t>(standby_->rank));
    service_.set(
        std::string(kStandbyKey) + (newcomer ? "newcomer" : std::to_string(standby_->rank)),
        "in step");
  }
  release_held();
}

// Returns false if the standby violates the protocol.
bool ServerLoop::hear_standby() {
  net::Connection& connection = standby_->connection;
  while (const auto message = fixed_part<FromStandby>(connection.received())) {
    const std::size_t bytes = sizeof *message + message->address_bytes;
    if (message->address_bytes > kMaxAddressBytes || message->applied > last_change_) return false;
    if (connection.received().size() < bytes) return true;
    if (message->address_bytes != 0)
      standby_->address =
          std::string(connection.received().substr(sizeof *message, message->address_bytes));
    connection.consume(bytes);
    if (message->applied <= standby_->applied) continue;
    standby_->applied = message->applied;
    standby_->applies_by.reset();
    if (standby_->applied < last_change_) await_standby();
  }
  if (!standby_->address.empty() && standby_->applied == last_change_) standby_->applies_by.reset();
  return true;
}

void ServerLoop::release_held() {
  while (!held_.empty() && (!standby_ || held_.front().number <= standby_->applied)) {
    const Held held = std::move(held_.front());
    held_.pop_front();
    Member& member = members_.at(held.fd);
    const bool had_room = has_room(member);
    member.held_bytes -= sizeof held.reply + held.bytes.size();
    deliver(held.fd, held.reply, held.bytes);
    if (!had_room && has_room(member)) serve(held.fd);  // requests have waited for room
  }
}

// Goes on without the standby. It is told so, lest it believe that this server has ended.
void ServerLoop::drop_standby() {
  Change dismissed;
  dismissed.kind = Change::Kind::dismissed;
  standby_->connection.queue(encode(dismissed, ++last_change_));
  // It may have stopped reading, with more on its way than the socket takes.
  const int fd = standby_->connection.fd();
  if (standby_->connection.flush() && standby_->connection.queued_bytes() != 0) {
    watch(EPOLL_CTL_MOD, fd, EPOLLOUT);
    dismissing_.emplace(fd, std::move(standby_->connection));
  }
  last_appointed_ = standby_->rank;
  standby_.reset();
  tell_successor({});
  release_held();
  appoint_at_ = now();
}

void ServerLoop::serve_dismissed(int fd) {
  net::Connection& connection = dismissing_.at(fd);
  if (!connection.flush() || connection.queued_bytes() == 0) dismissing_.erase(fd);
}

void ServerLoop::tell_successor(std::string_view address) {
  for (const auto& [fd, member] : members_)
    if (member.may_stand_by)
      deliver(fd, {0, Status::successor, static_cast<std::uint32_t>(address.size())}, address);
}

}  // namespace tutti::rendezvous
