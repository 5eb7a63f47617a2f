// Declares an endpoint: the connections to all peers of the first communicator, which all
// communicators split off it share.
#pragma once

#include <sys/types.h>

#include <cassert>
#include <memory>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "common/sync.h"
#include "net/stream.h"
#include "transport/mesh/lifelines.h"
#include "transport/queue_pair/connection.h"
#include "transport/queue_pair/device.h"
#include "transport/queue_pair/registrations.h"

namespace tutti::qp {

/// Owns the connections, and beside each the control connection by which it was made, and whose end
/// shows the end of the peer. Thread-safe once all peers are added. Its ranks are numbered as in
/// the communicator that made it.
class Endpoint {
 public:
  /// `devices` are the ports that connections may use, of which there is one at least; all have one
  /// name. `paths` is the number of paths to each peer, or 0 where it is to be chosen. `log` may be
  /// null.
  Endpoint(int size, const Clock& clock, std::vector<std::shared_ptr<Device>> devices,
           Log* log = nullptr, std::uint32_t paths = 0);
  /// Waits until the peers have what has been sent, or until nothing has moved for two seconds and
  /// no device is sending.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// Returns a connection that is not connected yet, with its first path where that is made
  /// `at_once`. Throws `unavailable`.
  std::unique_ptr<Connection> make_connection(bool at_once = true) {
    return std::make_unique<Connection>(*this, *devices_.front(), clock_, at_once);
  }
  std::uint32_t ports() const noexcept { return static_cast<std::uint32_t>(devices_.size()); }
  Device& device(std::uint32_t port) const noexcept { return *devices_[port]; }
  std::uint32_t paths() const noexcept { return paths_; }
  const std::shared_ptr<Registrations>& registrations() const noexcept { return registrations_; }
  /// Adds a connection that has its control connection.
  void add_peer(int rank, std::unique_ptr<Connection> connection);
  void watch_lives(std::vector<net::Stream> lifelines) {
    assert(!lifelines_ && lifelines.size() == peers_.size());
    lifelines_.emplace(std::move(lifelines));
  }
  /// Returns the connection to a rank, or null for this rank and for ranks to which it has none.
  Connection* peer(int rank) const noexcept {
    assert(rank >= 0 && static_cast<std::size_t>(rank) < peers_.size());
    return peers_[static_cast<std::size_t>(rank)].connection.get();
  }

  /// Handles what has arrived, and sends what can be sent.
  void progress();
  /// Does what progress() does, but only once for all communicators that call it at about the same
  /// time.
  void background_progress();
  /// Returns a descriptor that is readable, between arm() and disarm(), when progress() would find
  /// something.
  int wait_fd() const noexcept { return epoll_.get(); }
  void arm();
  void disarm() noexcept {
    [[maybe_unused]] const int sleepers = sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    assert(sleepers > 0);
  }
  /// Wakes threads that sleep when a control connection is readable, or where `writable` it takes
  /// more.
  void watch(Connection& connection, int control, bool writable) const;
  void log(LogLevel level, const std::string& text) const {
    if (log_ != nullptr) log_->write(level, "{}: {}", devices_.front()->name(), text);
  }
  bool anybody_asleep() const noexcept { return sleepers_.load(std::memory_order_seq_cst) > 0; }

 private:
  struct Peer {
    std::unique_ptr<Connection> connection;
    bool told_of_loss = false;  // whether its control connection has been shut down
  };

  void take_events();
  void tell_of_loss(Peer& peer);
  void linger() noexcept;

  void write_figures() const;

  const Clock& clock_;
  Log* const log_;
  const pid_t owner_ = getpid();
  const std::vector<std::shared_ptr<Device>> devices_;  // outlive the connections
  const std::uint32_t paths_;
  const std::shared_ptr<Registrations> registrations_;
  const Fd epoll_;
  sync::Mutex control_mutex_;  // guards the control connections and the events' owners
  std::vector<void*> owners_;
  std::vector<Peer> peers_;  // by rank
  std::optional<mesh::Lifelines> lifelines_;
  sync::Atomic<int> sleepers_{0};
  sync::Atomic<TimePoint> background_progress_at_{};
};

}  // namespace tutti::qp
