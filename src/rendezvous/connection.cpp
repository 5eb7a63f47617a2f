#include "rendezvous/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <limits>

namespace tutti::rendezvous {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;

bool not_now(int error) noexcept {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

// A queue that was once long does not keep its memory.
void drop_front(std::string& queue, std::size_t& dropped) {
  assert(dropped <= queue.size());
  if (dropped == queue.size() && queue.capacity() > kReadBytes)
    queue = std::string();
  else
    queue.erase(0, dropped);
  dropped = 0;
}

}  // namespace

bool Connection::receive() {
  drop_front(inbox_, consumed_);
  std::array<char, kReadBytes> buffer;
  const ssize_t got = recv(fd(), buffer.data(), buffer.size(), 0);
  if (got < 0) return not_now(errno);
  inbox_.append(buffer.data(), static_cast<std::size_t>(got));
  return got != 0;
}

bool Connection::flush() {
  while (sent_ < outbox_.size()) {
    const ssize_t put = send(fd(), outbox_.data() + sent_, outbox_.size() - sent_, MSG_NOSIGNAL);
    if (put < 0) return not_now(errno);
    sent_ += static_cast<std::size_t>(put);
  }
  drop_front(outbox_, sent_);
  return true;
}

int poll_milliseconds(TimePoint deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  const auto count = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<std::int64_t>(count, 0, std::numeric_limits<int>::max()));
}

}  // namespace tutti::rendezvous
