// Accepted connections that have not finished their handshake.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "common/clock.h"
#include "common/fd.h"

namespace tutti::net {

/// The limits on pending connections.
struct PendingLimits {
  std::size_t expected = 0;    ///< The number of connections that the owner waits for.
  std::size_t strangers = 64;  ///< The number of connections beyond `expected` that may be pending.
  /// The age at which a connection that has not authenticated is closed.
  std::chrono::milliseconds patience{5'000};
};

/// A set of pending connections, bounded in number and in age, since anybody may open connections
/// and leave them open: when there are too many, or one is too old, the oldest is closed. At most
/// `expected` connections that have authenticated are exempt and never closed, because their peers
/// may already consider themselves joined and would not connect again.
///
/// `Guest` is a pending connection. The owner defines its type, which has `int fd() const` and
/// `bool has_proved() const`. All functions are called by the owner's thread.
template <typename Guest>
class PendingConnections {
 public:
  /// `hear` processes the bytes that have arrived from a guest. It returns true if the guest stays
  /// pending, and false if it is to be closed or if the owner has moved its connection away. It is
  /// called once more before a guest is closed in favour of another. If it throws, the guest is
  /// closed.
  PendingConnections(const PendingLimits& limits, std::function<bool(Guest&)> hear)
      : limits_(limits), hear_(std::move(hear)) {}

  /// Accepts at most kAcceptsATurn connections of `listener` and calls `hear` for each. `make`
  /// turns a socket into a guest, or returns none to refuse it. Returns false if the process has
  /// run out of descriptors or memory and no pending connection can be closed instead.
  template <typename Make>
  [[nodiscard]] bool accept(const Fd& listener, TimePoint now, Make make) {
    for (int i = 0; i < kAcceptsATurn; ++i) {
      Fd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket) {
        if (std::optional<Guest> guest = make(std::move(socket))) admit(*std::move(guest), now);
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (!cut_oldest()) return false;
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return true;  // EAGAIN: no connection is waiting
      }
    }
    return true;
  }

  bool contains(int fd) const { return places_.contains(fd); }
  void hear(int fd) { hear_at(places_.at(fd)); }
  void hear_all() {
    for (auto next = guests_.begin(); next != guests_.end();) hear_at(next++);
  }

  /// Closes the connections that have been pending for too long.
  void cut_late(TimePoint now) {
    for (auto oldest = oldest_stranger(); oldest != guests_.end() && oldest->cut_at <= now;
         oldest = oldest_stranger())
      cut(oldest);
  }
  /// The time at which cut_late() next has a connection to close; none if there is none.
  std::optional<TimePoint> next_deadline() const {
    const auto oldest = std::find_if(guests_.begin(), guests_.end(), is_stranger);
    return oldest == guests_.end() ? std::nullopt : std::optional(oldest->cut_at);
  }

  std::size_t size() const noexcept { return guests_.size(); }
  /// Calls `use` with the descriptor of each pending connection, the oldest first.
  template <typename Use>
  void for_each_fd(Use&& use) const {
    for (const Entry& entry : guests_) use(entry.fd);
  }

 private:
  // The number is limited so that a flood of connections does not keep the owner from other work.
  static constexpr int kAcceptsATurn = 64;

  struct Entry {
    Guest guest;
    int fd;  // a copy, since the owner may have moved the guest's connection away
    TimePoint cut_at;
    bool proved = false;  // it has authenticated and is counted in proved_
  };
  using Entries = std::list<Entry>;
  using Place = typename Entries::iterator;

  static bool is_stranger(const Entry& entry) { return !entry.proved; }
  Place oldest_stranger() { return std::find_if(guests_.begin(), guests_.end(), is_stranger); }

  void admit(Guest guest, TimePoint now) {
    if (guests_.size() == limits_.expected + limits_.strangers && !cut_oldest()) return;
    const int fd = guest.fd();
    const Place place =
        guests_.insert(guests_.end(), Entry{std::move(guest), fd, now + limits_.patience});
    const bool is_new = places_.emplace(fd, place).second;
    assert(is_new);
    static_cast<void>(is_new);
    hear_at(place);
    assert(guests_.size() == places_.size() && proved_ <= limits_.expected);
  }

  // Closes the oldest connection that has not authenticated. Returns false if all have.
  bool cut_oldest() {
    for (auto oldest = oldest_stranger(); oldest != guests_.end(); oldest = oldest_stranger()) {
      if (!hear_at(oldest)) return true;
      if (oldest->proved) continue;
      cut(oldest);
      return true;
    }
    return false;
  }

  // Returns false if the guest is no longer pending.
  bool hear_at(Place place) {
    bool stays = false;
    try {
      stays = hear_(place->guest);
    } catch (...) {
      cut(place);
      throw;
    }
    if (!stays)
      cut(place);
    else if (!place->proved && proved_ < limits_.expected && place->guest.has_proved())
      place->proved = true, ++proved_;
    return stays;
  }

  void cut(Place place) {
    if (place->proved) --proved_;
    const std::size_t erased = places_.erase(place->fd);
    assert(erased == 1);
    static_cast<void>(erased);
    guests_.erase(place);
  }

  const PendingLimits limits_;
  const std::function<bool(Guest&)> hear_;
  Entries guests_;               // in order of arrival
  std::map<int, Place> places_;  // indexed by descriptor
  std::size_t proved_ = 0;       // the number of guests that are exempt from being closed
};

}  // namespace tutti::net
