// The two queues of bytes at one end of a non-blocking stream socket.
#pragma once

#include <cassert>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/fd.h"
#include "net/stream.h"

namespace tutti::net {

/// One thread at a time.
class Connection {
 public:
  Connection() = default;
  explicit Connection(Fd socket) : stream_(std::move(socket)) {}

  int fd() const noexcept { return stream_.fd(); }
  Stream& stream() noexcept { return stream_; }

  /// Takes what has come, at most about 64 KiB a call, all where it is encrypted; no more than
  /// makes received() `most` bytes long. False: the other end is gone.
  [[nodiscard]] bool receive(std::size_t most = std::numeric_limits<std::size_t>::max());
  std::string_view received() const noexcept { return std::string_view(inbox_).substr(consumed_); }
  /// Drops the first `bytes` of received().
  void consume(std::size_t bytes) noexcept {
    assert(bytes <= received().size());
    consumed_ += bytes;
  }

  void queue(std::string_view bytes) { outbox_.append(bytes); }
  std::size_t queued_bytes() const noexcept {
    return outbox_.size() - sent_ + stream_.unsent_bytes();
  }
  /// Sends what goes without waiting. False: the other end is gone.
  [[nodiscard]] bool flush();

 private:
  Stream stream_;
  std::string inbox_, outbox_;
  std::size_t consumed_ = 0, sent_ = 0;  // of inbox_, of outbox_
};

/// For poll(2) and epoll_wait(2): milliseconds until `deadline`, rounded up; 0 when it has passed.
int poll_milliseconds(TimePoint deadline);

}  // namespace tutti::net
