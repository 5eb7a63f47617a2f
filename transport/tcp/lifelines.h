// Connections that end with their process, whatever its forked children keep open.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "common/fd.h"
#include "net/stream.h"

namespace tutti::tcp {

/// One to each peer, beside the one for data, on which nothing is sent.
///
/// A forked child has copies of all descriptors in the file table of the thread that forks, and
/// nothing there can be kept from it: a killed rank's data connections stay open as long as its
/// children. So these are in the table of a thread of their own (close_range(2) with
/// CLOSE_RANGE_UNSHARE), which nobody forks, and which goes with its process. Where the kernel
/// gives no such table they are like the others. Thread-safe.
class Lifelines {
 public:
  /// By rank; none: no peer. What is forked while the connections are being made has copies.
  explicit Lifelines(std::vector<net::Stream> connections);
  ~Lifelines();
  Lifelines(const Lifelines&) = delete;
  Lifelines& operator=(const Lifelines&) = delete;

  /// The process at the other end has ended; what it sent before by another way may still come.
  bool has_ended(std::size_t rank) const noexcept {
    return ended_[rank].load(std::memory_order_acquire);
  }

 private:
  void watch(std::vector<pollfd>& fds) noexcept;

  const pid_t owner_;
  const Fd stop_;                         // an eventfd, in both tables
  std::vector<net::Stream> connections_;  // where they are in the process's own table
  std::vector<std::atomic<bool>> ended_;  // by rank
  std::thread thread_;
};

}  // namespace tutti::tcp
