// What the communicators of one start share: the connections to all peers of the first of them.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "common/fd.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/lifelines.h"

namespace tutti::tcp {

/// Thread-safe once its peers are complete: communicators that share it are used by different
/// threads. Its ranks are those of the communicator that made it.
class Endpoint {
 public:
  /// `checksum`: all frames carry a CRC-32C, and what does not fit it is corrupt.
  Endpoint(int size, const Clock& clock, bool checksum = false);
  /// What has been written still arrives: waits until peers' machines have it, or nothing has
  /// moved for two seconds.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void add_peer(int rank, net::Stream stream);
  /// By rank: beside each peer's connection one that ends with its process.
  void watch_lives(std::vector<net::Stream> lifelines) { lifelines_.emplace(std::move(lifelines)); }
  /// Null: this rank itself, or one that it is not connected to.
  Connection* peer(int rank) const noexcept { return peers_[static_cast<std::size_t>(rank)].get(); }

  /// Reads and writes what can be read and written.
  void progress();
  /// As progress(), once for all communicators that say so at about the same time.
  void background_progress();
  /// Between arm() and disarm(): readable when progress() would find something.
  int wait_fd() const noexcept { return epoll_.get(); }
  void arm();
  void disarm() noexcept { sleepers_.fetch_sub(1, std::memory_order_release); }
  /// Whether a connection may leave the epoll: who polls it reads for all.
  bool anybody_asleep() const noexcept { return sleepers_.load(std::memory_order_acquire) > 0; }
  [[nodiscard]] bool watch(Connection& connection) noexcept;

  /// Frames wait for room in a socket: somebody must flush().
  bool has_unsent() const noexcept { return unsent_.load(std::memory_order_relaxed) > 0; }
  void count_unsent(int by) noexcept { unsent_.fetch_add(by, std::memory_order_relaxed); }
  void flush();

  /// Of a connection that has ended there is no more news.
  void forget(const Connection& connection) noexcept;

 private:
  void linger() noexcept;

  const Clock& clock_;
  const bool checksum_;
  const pid_t owner_ = getpid();
  const Fd epoll_;
  std::vector<std::unique_ptr<Connection>> peers_;  // by rank
  std::optional<Lifelines> lifelines_;
  std::atomic<int> unsent_{0};  // connections
  std::atomic<int> sleepers_{0};
  std::atomic<TimePoint> background_progress_at_{};
};

}  // namespace tutti::tcp
