// An endpoint: the connections to all peers of the first communicator, which all communicators
// split off it share.
#pragma once

#include <cassert>
#include <memory>
#include <type_traits>
#include <vector>

#include "common/fd.h"
#include "common/sync.h"
#include "transport/shm/peer.h"

namespace tutti::shm {

/// Owns the peers. Thread-safe, because communicators that share it are used by different threads.
/// Its ranks are numbered as in the communicator that made it.
class Endpoint {
 public:
  explicit Endpoint(int size);

  /// Adds a peer, after the handshake. All peers are added before the first split().
  void add_peer(const TransportContext& context, int rank, Link link, const Segments& segments);

  /// Whether there is a connection to `rank`, once all have been made.
  bool has(int rank) const noexcept {
    assert(rank >= 0 && static_cast<std::size_t>(rank) < peers_.size());
    return peers_[static_cast<std::size_t>(rank)] != nullptr;
  }

  /// Calls `use(peer)` with the lock held.
  template <typename Use>
  std::invoke_result_t<Use, Peer&> with(int rank, Use&& use) {
    assert(has(rank));
    const std::lock_guard lock(mutex_);
    return use(*peers_[static_cast<std::size_t>(rank)]);
  }

  /// Receives what peers have sent, and notices those that have ended.
  void progress();
  int wait_fd() const noexcept { return epoll_.get(); }

 private:
  const Fd epoll_;
  mutable sync::Mutex mutex_;
  Allowance allowance_;  // guarded by mutex_
  // A descriptor that is closed while packets are received, so that theirs have room where the
  // process has none for more. Guarded by mutex_.
  Fd spare_;
  /// Indexed by rank. An entry is null for this rank, for ranks that another transport reaches, and
  /// until connected.
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace tutti::shm
