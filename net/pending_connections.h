// Connections that somebody has opened and that have not shown yet whose they are.
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

struct PendingLimits {
  std::size_t expected = 0;    ///< Connections that the owner waits for.
  std::size_t strangers = 64;  ///< So many more may be pending at a time.
  /// After this time a connection is cut.
  std::chrono::milliseconds patience{5'000};
};

/// What anybody can open and leave open is bounded in number and in time: where a connection too
/// many comes, or one stays too long, the oldest is cut. Whoever has proved to be one of those that
/// are waited for (at most as many as these are at a time) is never cut: it may take itself for
/// joined already, and not come again.
///
/// `Guest` is the owner's, with `int fd() const` and `bool has_proved() const`. Own thread only.
template <typename Guest>
class PendingConnections {
 public:
  /// `hear` takes what has come from a guest; true: the guest goes on to be pending. False: it is
  /// to be cut, or the owner has moved its connection away. It is called once more before a guest
  /// is cut in favour of another. If it throws, the guest is cut.
  PendingConnections(const PendingLimits& limits, std::function<bool(Guest&)> hear)
      : limits_(limits), hear_(std::move(hear)) {}

  /// Accepts some of those that wait at `listener`, and hears them; `make` gives a guest for a
  /// socket, or none for one that is not let in. False: there are no descriptors left for more.
  template <typename Make>
  [[nodiscard]] bool accept(const Fd& listener, TimePoint now, Make make) {
    for (int i = 0; i < kAcceptsATurn; ++i) {
      Fd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket) {
        if (std::optional<Guest> guest = make(std::move(socket))) admit(*std::move(guest), now);
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (!cut_oldest()) return false;
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return true;  // EAGAIN: nobody is left
      }
    }
    return true;
  }

  bool contains(int fd) const { return places_.contains(fd); }
  void hear(int fd) { hear_at(places_.at(fd)); }
  void hear_all() {
    for (auto next = guests_.begin(); next != guests_.end();) hear_at(next++);
  }

  /// Cuts those that have been pending for too long.
  void cut_late(TimePoint now) {
    for (auto oldest = oldest_stranger(); oldest != guests_.end() && oldest->cut_at <= now;
         oldest = oldest_stranger())
      cut(oldest);
  }
  /// When cut_late() will have something to do.
  std::optional<TimePoint> next_deadline() const {
    const auto oldest = std::find_if(guests_.begin(), guests_.end(), is_stranger);
    return oldest == guests_.end() ? std::nullopt : std::optional(oldest->cut_at);
  }

  std::size_t size() const noexcept { return guests_.size(); }
  /// The descriptors of all, the oldest first.
  template <typename Use>
  void for_each_fd(Use&& use) const {
    for (const Entry& entry : guests_) use(entry.fd);
  }

 private:
  static constexpr int kAcceptsATurn = 64;  // a flood must not keep the owner from its other work

  struct Entry {
    Guest guest;
    int fd;  // the guest's, which the owner may have moved away
    TimePoint cut_at;
    bool proved = false;  // one of proved_
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

  // False: all have proved themselves.
  bool cut_oldest() {
    for (auto oldest = oldest_stranger(); oldest != guests_.end(); oldest = oldest_stranger()) {
      if (!hear_at(oldest)) return true;
      if (oldest->proved) continue;
      cut(oldest);
      return true;
    }
    return false;
  }

  // False: it is gone.
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
  Entries guests_;               // the oldest first
  std::map<int, Place> places_;  // by descriptor
  std::size_t proved_ = 0;       // guests
};

}  // namespace tutti::net
