// Lifelines: connections that end with their process, whatever its forked children keep open.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <cassert>
#include <cstddef>
#include <thread>
#include <vector>

#include "common/fd.h"
#include "common/sync.h"
#include "net/stream.h"

namespace tutti::mesh {

/// One lifeline to each peer, beside the connection for data. Nothing is sent on it.
///
/// A forked child gets copies of all descriptors in the file table of the thread that forks, so
/// that a killed rank's data connections stay open as long as its children live. Lifelines are
/// therefore in the file table of a thread of their own (made by close_range(2) with
/// CLOSE_RANGE_UNSHARE), which never forks, and whose table ends with the process. Where the kernel
/// cannot make such a table, lifelines are in the process's table as other connections are.
/// Thread-safe.
class Lifelines {
 public:
  /// `connections` is indexed by rank, and an entry is empty where there is no peer. Processes that
  /// are forked while the connections are being made get copies of them.
  explicit Lifelines(std::vector<net::Stream> connections);
  ~Lifelines();
  Lifelines(const Lifelines&) = delete;
  Lifelines& operator=(const Lifelines&) = delete;

  /// Whether the process at the other end has ended. What it sent before on its data connection may
  /// still arrive.
  bool has_ended(std::size_t rank) const noexcept {
    assert(rank < ended_.size());
    return ended_[rank].load(std::memory_order_acquire);
  }

 private:
  void watch(std::vector<pollfd>& fds) noexcept;

  const pid_t owner_;
  const Fd stop_;                          // an eventfd that is in both file tables
  std::vector<net::Stream> connections_;   // filled where they are in the process's file table
  std::vector<sync::Atomic<bool>> ended_;  // by rank
  std::thread thread_;
};

}  // namespace tutti::mesh
