// Delays what it carries to a server on this machine, as a long distance does.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {

/// Accepts connections at a port of 127.0.0.1, makes one to `port` there for each, and carries
/// bytes both ways, each `delay` after it has come. It has one thread.
class SlowPath {
 public:
  using Clock = std::chrono::steady_clock;

  SlowPath(int port, Clock::duration delay) : server_(port), delay_(delay) {
    const sockaddr_in any = address(0);
    socklen_t bytes = sizeof own_;
    if (bind(listener_, generic(any), sizeof any) != 0 || listen(listener_, 16) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&own_), &bytes) != 0)
      throw std::runtime_error("no port for a slow path");
    thread_ = std::jthread([this](const std::stop_token& stop) { carry(stop); });
  }
  ~SlowPath() {
    thread_.request_stop();
    thread_.join();
    close(listener_);
  }
  SlowPath(const SlowPath&) = delete;
  SlowPath& operator=(const SlowPath&) = delete;

  int port() const { return ntohs(own_.sin_port); }

 private:
  struct Piece {
    Clock::time_point due;
    std::string bytes;  // empty for the end of the stream
  };
  struct Line {
    std::array<int, 2> ends;
    std::array<std::deque<Piece>, 2> from = {};  // what has come from each end
    std::array<bool, 2> ended = {};

    explicit Line(std::array<int, 2> its) : ends(its) {}
    ~Line() {
      for (const int end : ends) close(end);
    }
    Line(const Line&) = delete;
    Line& operator=(const Line&) = delete;
  };

  static const sockaddr* generic(const sockaddr_in& address) {
    return reinterpret_cast<const sockaddr*>(&address);
  }
  static sockaddr_in address(int port) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<std::uint16_t>(port));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return place;
  }

  void carry(const std::stop_token& stop) {
    std::vector<std::unique_ptr<Line>> lines;
    while (!stop.stop_requested()) {
      std::vector<pollfd> ready{{listener_, POLLIN, 0}};
      for (const auto& line : lines)
        for (std::size_t end = 0; end < 2; ++end)
          ready.push_back({line->ended[end] ? -1 : line->ends[end], POLLIN, 0});
      poll(ready.data(), ready.size(), 5);
      for (std::size_t at = 1; at < ready.size(); ++at)
        if (ready[at].revents != 0) take(*lines[(at - 1) / 2], (at - 1) % 2);
      if (ready[0].revents != 0) lines.push_back(accept_one());
      for (const auto& line : lines)
        for (std::size_t end = 0; end < 2; ++end) pass_on(*line, end);
    }
  }
  std::unique_ptr<Line> accept_one() const {
    const sockaddr_in server = address(server_);
    auto line = std::make_unique<Line>(
        std::array{accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC), tcp_socket()});
    static_cast<void>(connect(line->ends[1], generic(server), sizeof server));
    return line;
  }
  void take(Line& line, std::size_t end) const {
    std::string bytes(64 << 10, '\0');
    const ssize_t got = recv(line.ends[end], bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    line.ended[end] = bytes.empty();
    line.from[end].push_back({Clock::now() + delay_, std::move(bytes)});
  }
  static void pass_on(Line& line, std::size_t end) {
    std::deque<Piece>& pieces = line.from[end];
    for (; !pieces.empty() && pieces.front().due <= Clock::now(); pieces.pop_front()) {
      const std::string& bytes = pieces.front().bytes;
      if (bytes.empty()) shutdown(line.ends[1 - end], SHUT_WR);
      static_cast<void>(send(line.ends[1 - end], bytes.data(), bytes.size(), MSG_NOSIGNAL));
    }
  }
  static int tcp_socket() { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }

  const int server_;
  const Clock::duration delay_;
  const int listener_ = tcp_socket();
  sockaddr_in own_{};
  std::jthread thread_;
};

}  // namespace tutti::test
