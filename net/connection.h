// A non-blocking stream socket with a receive queue and a send queue.
#pragma once

#include <cassert>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

#include "common/fd.h"
#include "common/patience.h"
#include "net/stream.h"

namespace tutti::net {

/// One end of a connection. It may be used by one thread at a time.
class Connection {
 public:
  Connection() = default;
  explicit Connection(Fd socket) : stream_(std::move(socket)) {}

  int fd() const noexcept { return stream_.fd(); }
  Stream& stream() noexcept { return stream_; }

  /// Appends to received() the bytes that have arrived: at most 64 KiB if the connection is not
  /// encrypted, and all of them if it is. received() does not grow beyond `most` bytes. Returns
  /// false if the other end has closed the connection or it has failed.
  [[nodiscard]] bool receive(std::size_t most = std::numeric_limits<std::size_t>::max());
  std::string_view received() const noexcept { return std::string_view(inbox_).substr(consumed_); }
  /// Removes the first `bytes` bytes of received().
  void consume(std::size_t bytes) noexcept {
    assert(bytes <= received().size());
    consumed_ += bytes;
  }

  /// Throws std::bad_alloc and queues nothing where there is no memory for both.
  void queue(std::string_view bytes, std::string_view more = {}) {
    outbox_.reserve(outbox_.size() + bytes.size() + more.size());
    outbox_.append(bytes).append(more);
  }
  std::size_t queued_bytes() const noexcept {
    return outbox_.size() - sent_ + stream_.unsent_bytes();
  }
  /// Sends as much of the queue as the socket takes without blocking. Returns false if the
  /// connection has failed.
  [[nodiscard]] bool flush();

 private:
  Stream stream_;
  std::string inbox_, outbox_;
  std::size_t consumed_ = 0, sent_ = 0;  // bytes at the front of inbox_, of outbox_
};

/// The timeout of poll(2) and epoll_wait(2) for `deadline`: the milliseconds until then, rounded
/// up; 0 once it has passed.
int poll_milliseconds(TimePoint deadline);

/// Waits for these events of poll(2), or an error, at `fd`. Returns false if they have not come in
/// time.
[[nodiscard]] bool await_events(int fd, short events, const Patience& patience);

}  // namespace tutti::net
