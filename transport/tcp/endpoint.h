// An endpoint: the connections to all peers of the first communicator, which all communicators
// split off it share.
#pragma once

#include <cassert>
#include <memory>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "common/fd.h"
#include "common/sync.h"
#include "transport/mesh/lifelines.h"
#include "transport/tcp/connection.h"

namespace tutti::tcp {

/// Owns the connections. Thread-safe once all peers are added, because communicators that share it
/// are used by different threads. Its ranks are numbered as in the communicator that made it.
class Endpoint {
 public:
  /// Where `checksum` is set, all frames carry a CRC-32C, and a connection whose bytes do not match
  /// it is corrupt.
  Endpoint(int size, const Clock& clock, bool checksum = false);
  /// Waits until the peers' machines have received what has been written, or until nothing has
  /// moved for two seconds.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void add_peer(int rank, net::Stream stream);
  /// Adds the lifelines, by rank: beside each peer's connection, one that ends with the peer's
  /// process.
  void watch_lives(std::vector<net::Stream> lifelines) {
    assert(!lifelines_ && lifelines.size() == peers_.size());
    lifelines_.emplace(std::move(lifelines));
  }
  /// Returns the connection to a rank, or null for this rank and for ranks to which it has none.
  Connection* peer(int rank) const noexcept {
    assert(rank >= 0 && static_cast<std::size_t>(rank) < peers_.size());
    return peers_[static_cast<std::size_t>(rank)].get();
  }

  /// Reads and writes what can be read and written.
  void progress();
  /// Does what progress() does, but only once for all communicators that call it at about the same
  /// time.
  void background_progress();
  /// Returns a descriptor that is readable, between arm() and disarm(), when progress() would find
  /// something.
  int wait_fd() const noexcept { return epoll_.get(); }
  void arm();
  void disarm() noexcept {
    [[maybe_unused]] const int sleepers = sleepers_.fetch_sub(1, std::memory_order_release);
    assert(sleepers > 0);
  }
  /// Whether any thread sleeps. Where none does, a connection may leave the epoll, since the thread
  /// that polls it reads for all.
  bool anybody_asleep() const noexcept { return sleepers_.load(std::memory_order_acquire) > 0; }
  [[nodiscard]] bool watch(Connection& connection) noexcept;

  /// Whether frames wait for room in a socket, so that some thread must flush().
  bool has_unsent() const noexcept { return unsent_.load(std::memory_order_relaxed) > 0; }
  void count_unsent(int by) noexcept {
    [[maybe_unused]] const int before = unsent_.fetch_add(by, std::memory_order_relaxed);
    assert(before + by >= 0 && before + by <= static_cast<int>(peers_.size()));
  }
  void flush();

  /// Removes a connection from the epoll, since it is polled or has ended.
  void forget(const Connection& connection) noexcept;

 private:
  void linger() noexcept;

  const Clock& clock_;
  const bool checksum_;
  const pid_t owner_ = getpid();
  const Fd epoll_;
  std::vector<std::unique_ptr<Connection>> peers_;  // by rank
  std::optional<mesh::Lifelines> lifelines_;
  sync::Atomic<int> unsent_{0};  // number of connections with frames to be written
  sync::Atomic<int> sleepers_{0};
  sync::Atomic<TimePoint> background_progress_at_{};
};

}  // namespace tutti::tcp
