// Connects ranks of one process by queue pairs without a kernel. They do what the specification
// lets a device do: completions come late, and in any order between queue pairs, and whatever is
// not allowed fails as it does over a network.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/rdma/verbs.h"

namespace tutti::rdma::fake {

/// The network between the devices that it makes. Thread-safe.
class Network {
 public:
  /// The seed determines how late completions are.
  explicit Network(std::uint64_t seed = 1);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// Returns a device, which keeps the network alive.
  std::shared_ptr<Device> make_device();

  /// From now on, nothing that is sent arrives: requests fail.
  void cut();
  /// From now on, what one queue pair sends is neither received nor acknowledged: the pair of this
  /// number, counted from 1 in the order in which they were made.
  void swallow(std::uint64_t pair);
  /// Withholds the acknowledgements of what the queue pair of this number sends, until the next
  /// call, which is for another one (0: none). Its peer receives it all the same.
  void hold_acknowledgements(std::uint64_t pair);
  /// From now on, queue pairs cannot be connected.
  void refuse();
  /// The number of sends for which the peer had no request to receive.
  std::uint64_t overruns() const;
  /// The most bytes that were registered at the same time.
  std::uint64_t registered_bytes() const;

  struct Inside;

 private:
  const std::shared_ptr<Inside> inside_;
};

}  // namespace tutti::rdma::fake
