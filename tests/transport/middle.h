// A process in the middle between two ranks, which can change bytes on their way.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/fd.h"
#include "net/tcp_socket.h"

namespace tutti {

/// Accepts connections at a port of its own, makes one to `target` for each, and carries bytes in
/// both directions.
class Middle {
 public:
  explicit Middle(SocketAddress target)
      : target_(std::move(target)),
        listener_(net::listen_tcp({"127.0.0.1", 0})),
        thread_([this](const std::stop_token& stop) { carry(stop); }) {}

  SocketAddress place() const { return {"127.0.0.1", net::port_of(listener_)}; }

  /// Changes, once, a bit of the byte that is `skip` bytes ahead on the first connection, which is
  /// the one for data: in what the caller sends, or in what it receives.
  void flip(bool from_caller, std::size_t skip = 0) {
    skip_[from_caller ? 0 : 1].store(static_cast<long>(skip), std::memory_order_release);
  }
  /// Ends the connections that it carries once no bytes are on their way, although neither end has
  /// asked for it.
  void cut() { cut_.store(true, std::memory_order_release); }
  bool has_flipped() const { return flipped_.load(std::memory_order_acquire); }

 private:
  struct Line {
    Fd ends[2];
    bool ended[2] = {};  // whether nothing more arrives from that end
  };

  void carry(const std::stop_token& stop) {
    std::vector<Line> lines;
    while (!stop.stop_requested()) {
      std::vector<pollfd> ready{{listener_.get(), POLLIN, 0}};
      for (const Line& line : lines)
        for (int from = 0; from < 2; ++from)
          ready.push_back({line.ended[from] ? -1 : line.ends[from].get(), POLLIN, 0});
      if (poll(ready.data(), ready.size(), 10) <= 0) {
        if (cut_.load(std::memory_order_acquire)) lines.clear();
        continue;
      }
      for (std::size_t at = 0; at < lines.size(); ++at)
        for (std::size_t from = 0; from < 2; ++from)
          if (ready[1 + 2 * at + from].revents != 0) carry(lines[at], from, at == 0);
      if (ready[0].revents != 0) lines.push_back(accept());
    }
  }
  Line accept() const {
    Line line;
    line.ends[0] = Fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const TimePoint deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    const auto found = net::find_places(target_, deadline);
    line.ends[1] = std::move(net::connect_tcp(found.places.front(), deadline).socket);
    return line;
  }
  void carry(Line& line, std::size_t from, bool first) {
    if (carry(line.ends[from], line.ends[1 - from], first ? &skip_[from] : nullptr)) return;
    line.ended[from] = true;
    shutdown(line.ends[1 - from].get(), SHUT_WR);
    if (line.ended[1 - from]) line.ends[0].reset(), line.ends[1].reset();
  }
  // Returns false where nothing more arrives from that end. Bytes that can no longer be sent are
  // read and dropped, since the other direction may still carry some.
  bool carry(const Fd& from, const Fd& to, std::atomic<long>* skip) {
    std::vector<char> bytes(64 << 10);
    const ssize_t got = recv(from.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    const long left = skip == nullptr ? -1 : skip->load(std::memory_order_acquire);
    if (left >= 0 && left < got) {
      bytes[static_cast<std::size_t>(left)] ^= 0x04;
      flipped_.store(true, std::memory_order_release);
    }
    if (left >= 0) skip->store(left < got ? -1 : left - got, std::memory_order_release);
    for (ssize_t sent = 0; sent < got;) {
      pollfd writable{to.get(), POLLOUT, 0};
      poll(&writable, 1, 1000);
      const auto count = static_cast<std::size_t>(got - sent);
      const ssize_t put = send(to.get(), bytes.data() + sent, count, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (put < 0 && errno != EAGAIN) break;
      if (put > 0) sent += put;
    }
    return true;
  }

  const SocketAddress target_;
  const Fd listener_;
  std::atomic<long> skip_[2]{-1, -1};  // -1 where nothing is changed
  std::atomic<bool> flipped_{false}, cut_{false};
  std::jthread thread_;
};

}  // namespace tutti
