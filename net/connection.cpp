#include "net/connection.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <limits>

namespace tutti::net {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;

// Removes the first `dropped` bytes. The memory of a queue that has grown large is freed once the
// queue is empty.
void drop_front(std::string& queue, std::size_t& dropped) {
  assert(dropped <= queue.size());
  if (dropped == queue.size() && queue.capacity() > kReadBytes)
    queue = std::string();
  else
    queue.erase(0, dropped);
  dropped = 0;
}

}  // namespace

bool Connection::receive(std::size_t most) {
  assert(fd() >= 0);
  drop_front(inbox_, consumed_);
  std::array<char, kReadBytes> buffer;
  std::size_t got = 0, room = 0;
  do {
    if (inbox_.size() >= most) return true;
    room = std::min(buffer.size(), most - inbox_.size());
    const iovec to{buffer.data(), room};
    const ssize_t result = stream_.read({&to, 1});
    if (result < 0) return not_now(errno);
    got = static_cast<std::size_t>(result);
    assert(got <= room);
    inbox_.append(buffer.data(), got);
  } while (got == room && stream_.tls() != nullptr);
  return got != 0;
}

bool Connection::flush() {
  while (sent_ < outbox_.size()) {
    const iovec piece{outbox_.data() + sent_, outbox_.size() - sent_};
    const ssize_t put = stream_.write({&piece, 1});
    if (put < 0) {
      const bool open = not_now(errno);
      if (sent_ > outbox_.size() / 2) drop_front(outbox_, sent_);  // moves less than was sent
      return open;
    }
    sent_ += static_cast<std::size_t>(put);
    assert(sent_ <= outbox_.size());
  }
  drop_front(outbox_, sent_);
  return stream_.flush();
}

int poll_milliseconds(TimePoint deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  const auto count = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<std::int64_t>(count, 0, std::numeric_limits<int>::max()));
}

bool await_events(int fd, short events, const Patience& patience) {
  for (;;) {
    const bool over = patience.over();
    pollfd waited{fd, events, 0};
    const int ready = poll(&waited, 1, over ? 0 : poll_milliseconds(patience.next_look()));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (over) return false;
  }
}

}  // namespace tutti::net
