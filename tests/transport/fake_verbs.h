// Connects ranks of one process by queue pairs without a kernel. They do what the specification
// lets a device do: completions come late, and in any order between queue pairs, and whatever is
// not allowed fails as it does over a network.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/queue_pair/device.h"

namespace tutti::qp::fake {

/// The network between the devices that it makes. Thread-safe.
class Network {
 public:
  /// The seed determines how late completions are.
  explicit Network(std::uint64_t seed = 1);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// Returns a device with one port, which keeps the network alive. Devices are numbered from 0.
  std::shared_ptr<Device> make_device();

  /// From now on, nothing that is sent arrives: requests fail.
  void cut();
  /// From now on, nothing that the port of a device sends or is sent arrives; or it is as before.
  void set_port(std::size_t device, bool works);
  /// Lets the queue pair of a number, counted from 1 in the order in which they were made, fail.
  /// Some of what it has sent, and was not told to be there yet, is reported as lost although it
  /// has arrived. Its peer notices when it sends something.
  void fail_pair(std::uint64_t pair);
  /// Lets any queue pair fail that has not.
  void fail_any();
  /// Returns the number of the queue pair that was made last.
  std::uint64_t last_pair() const;
  /// From now on, what one queue pair sends is neither received nor acknowledged: the pair of this
  /// number, counted from 1 in the order in which they were made.
  void swallow(std::uint64_t pair);
  /// Withholds the acknowledgements of what the queue pair of this number sends, until the next
  /// call, which is for another one (0: none). Its peer receives it all the same.
  void hold_acknowledgements(std::uint64_t pair);
  /// From now on, queue pairs cannot be connected.
  void refuse();
  /// From now on, a queue pair that has failed takes no requests at all.
  void refuse_requests();
  /// From now on, the queue pair of this number cannot be asked for what it has done.
  void hide_completions(std::uint64_t pair);
  /// Withholds all reads until it is called with false.
  void hold_reads(bool hold);
  /// From now on, each read over the port of a device takes that many polls more.
  void slow_reads(std::size_t device, std::uint32_t polls);
  /// From now on, no more than so many bytes can be registered at the same time.
  void limit_registered(std::uint64_t bytes);
  /// From now on, new connections allow so many reads at once (0: none).
  void limit_reads(std::uint32_t at_once);
  /// The number and the bytes of requests to read that have succeeded.
  std::uint64_t reads() const;
  std::uint64_t read_bytes() const;
  /// The bytes that the port of a device has read.
  std::uint64_t read_bytes(std::size_t device) const;
  /// The bytes of all sends that have arrived.
  std::uint64_t sent_bytes() const;
  /// The number of requests to read that the peer's device has refused.
  std::uint64_t refused_reads() const;
  /// The number of sends for which the peer had no request to receive.
  std::uint64_t overruns() const;
  /// The most bytes that were registered at the same time, and those that are now.
  std::uint64_t registered_bytes() const;
  std::uint64_t registered_now() const;

  struct Inside;

 private:
  const std::shared_ptr<Inside> inside_;
};

}  // namespace tutti::qp::fake
