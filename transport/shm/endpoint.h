// What the communicators of one start share: the connections to all peers of the first of them.
#pragma once

#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "common/fd.h"
#include "transport/shm/peer.h"

namespace tutti::shm {

/// Thread-safe: communicators that share it are used by different threads. Its ranks are those of
/// the communicator that made it.
class Endpoint {
 public:
  explicit Endpoint(int size);

  /// Peers are complete: after the handshake, before the first split().
  void add_peer(const TransportContext& context, int rank, Link link, const Segments& segments);

  /// Whether there is a connection to `rank`, once all have been made.
  bool has(int rank) const noexcept { return peers_[static_cast<std::size_t>(rank)] != nullptr; }

  /// `use(peer)` under the lock.
  template <typename Use>
  std::invoke_result_t<Use, Peer&> with(int rank, Use&& use) {
    const std::lock_guard lock(mutex_);
    return use(*peers_[static_cast<std::size_t>(rank)]);
  }

  /// Hears what peers have to say.
  void progress();
  int wait_fd() const noexcept { return epoll_.get(); }

 private:
  const Fd epoll_;
  mutable std::mutex mutex_;
  /// By rank. Null for this rank, for ranks that another transport reaches, and until connected.
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace tutti::shm
