// Accepted connections that have not finished their handshake.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "common/clock.h"
#include "common/fd.h"

namespace tutti::net {

/// The limits on pending connections.
struct PendingLimits {
  std::size_t expected = 0;  ///< The number of connections that the owner waits for.
  /// The number of connections beyond `expected` that may be pending.
  std::size_t unauthenticated = 64;
  /// The age at which a connection that has not authenticated is closed.
  std::chrono::milliseconds patience{5'000};
};

/// A set of pending connections, bounded in number and in age, since anybody may open connections
/// and leave them open: when there are too many, or one is too old, the oldest is closed. At most
/// `expected` connections that have authenticated are exempt and never closed, because their peers
/// may already consider themselves joined and would not connect again.
///
/// `Pending` is a pending connection. The owner defines its type, which has `int fd() const` and
/// `bool has_proved() const`. All functions are called by the owner's thread.
template <typename Pending>
class PendingConnections {
 public:
  /// `serve` processes the bytes that have arrived from a connection. It returns true if the
  /// connection stays pending, and false if it is to be closed or if the owner has moved its
  /// connection away. It is called once more before a connection is closed in favour of another. If
  /// it throws, the connection is closed.
  PendingConnections(const PendingLimits& limits, std::function<bool(Pending&)> serve)
      : limits_(limits), serve_(std::move(serve)) {
    assert(serve_ != nullptr);
  }

  /// Accepts at most kAcceptsATurn connections of `listener` and calls `serve` for each. `make`
  /// turns a socket into a connection, or returns none to refuse it. Returns false if the process
  /// has run out of descriptors or memory and no pending connection can be closed instead.
  template <typename Make>
  [[nodiscard]] bool accept(const Fd& listener, TimePoint now, Make make) {
    for (int i = 0; i < kAcceptsATurn; ++i) {
      Fd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket) {
        if (std::optional<Pending> connection = make(std::move(socket)))
          admit(*std::move(connection), now);
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        short_of_files_ = short_of_files_ || errno == EMFILE || errno == ENFILE;
        if (!close_oldest()) return false;
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return true;  // EAGAIN: no connection is waiting
      }
    }
    return true;
  }

  /// Returns whether a connection could not be accepted at once because there were too many open
  /// files.
  bool short_of_files() const noexcept { return short_of_files_; }

  bool contains(int fd) const { return places_.contains(fd); }
  void serve(int fd) { serve_at(places_.at(fd)); }
  void serve_all() {
    for (auto next = connections_.begin(); next != connections_.end();) serve_at(next++);
  }

  /// Closes the connections that have been pending for too long.
  void close_expired(TimePoint now) {
    for (auto oldest = oldest_unauthenticated();
         oldest != connections_.end() && oldest->expires_at <= now;
         oldest = oldest_unauthenticated())
      close(oldest);
  }
  /// The time at which close_expired() next has a connection to close; none if there is none.
  std::optional<TimePoint> next_deadline() const {
    const auto oldest = std::find_if(connections_.begin(), connections_.end(), is_unauthenticated);
    return oldest == connections_.end() ? std::nullopt : std::optional(oldest->expires_at);
  }

  std::size_t size() const noexcept { return connections_.size(); }
  /// Calls `use` with the descriptor of each pending connection, the oldest first.
  template <typename Use>
  void for_each_fd(Use&& use) const {
    for (const Entry& entry : connections_) use(entry.fd);
  }

 private:
  // The number is limited so that a flood of connections does not keep the owner from other work.
  static constexpr int kAcceptsATurn = 64;

  struct Entry {
    Pending connection;
    int fd;  // a copy, since the owner may have moved the socket away
    TimePoint expires_at;
    bool proved = false;  // it has authenticated and is counted in proved_
  };
  using Entries = std::list<Entry>;
  using Place = typename Entries::iterator;

  static bool is_unauthenticated(const Entry& entry) { return !entry.proved; }
  Place oldest_unauthenticated() {
    return std::find_if(connections_.begin(), connections_.end(), is_unauthenticated);
  }

  void admit(Pending connection, TimePoint now) {
    if (connections_.size() == limits_.expected + limits_.unauthenticated && !close_oldest())
      return;
    const int fd = connection.fd();
    const Place place = connections_.insert(
        connections_.end(), Entry{std::move(connection), fd, now + limits_.patience});
    assert(!places_.contains(fd));
    try {
      places_.emplace(fd, place);
    } catch (...) {  // out of memory
      connections_.erase(place);
      throw;
    }
    serve_at(place);
    assert(connections_.size() == places_.size() && proved_ <= limits_.expected);
  }

  // Closes the oldest connection that has not authenticated. Returns false if all have.
  bool close_oldest() {
    for (auto oldest = oldest_unauthenticated(); oldest != connections_.end();
         oldest = oldest_unauthenticated()) {
      if (!serve_at(oldest)) return true;
      if (oldest->proved) continue;
      close(oldest);
      return true;
    }
    return false;
  }

  // Returns false if the connection is no longer pending.
  bool serve_at(Place place) {
    assert(proved_ <= limits_.expected && places_.size() == connections_.size());
    bool stays = false;
    try {
      stays = serve_(place->connection);
    } catch (...) {
      close(place);
      throw;
    }
    if (!stays)
      close(place);
    else if (!place->proved && proved_ < limits_.expected && place->connection.has_proved())
      place->proved = true, ++proved_;
    return stays;
  }

  void close(Place place) {
    assert(!place->proved || proved_ > 0);
    if (place->proved) --proved_;
    const std::size_t erased = places_.erase(place->fd);
    assert(erased == 1);
    static_cast<void>(erased);
    connections_.erase(place);
  }

  const PendingLimits limits_;
  const std::function<bool(Pending&)> serve_;
  Entries connections_;          // in order of arrival
  std::map<int, Place> places_;  // indexed by descriptor
  bool short_of_files_ = false;
  std::size_t proved_ = 0;  // the number of connections that are exempt from being closed
};

}  // namespace tutti::net
