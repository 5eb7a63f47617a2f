// Measures two ranks without a library, by the method of method.h. They have one non-blocking
// socket, on which an all_reduce sends the whole buffer and adds what it receives. Reads RANK, and
// MASTER_ADDR of rank 0.
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "method.h"

namespace tutti::compare {
namespace {

constexpr const char* kPort = "29777";
constexpr std::size_t kMostBytes = 128 << 10;  // most bytes for one system call

std::string in_environment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) throw std::runtime_error(std::string(name) + " is not set");
  return text;
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

void check(bool right, const char* what) {
  if (!right) fail(what);
}

/// The socket uses reno whatever the system's default is, since the pacing of BBR makes the limit
/// vary tenfold.
int new_socket() {
  const int made = ::socket(AF_INET, SOCK_STREAM, 0);
  ::setsockopt(made, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
  return made;
}

/// Rank 0 listens; rank 1 connects until it succeeds.
int connect_ranks(int rank) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* place = nullptr;
  check(getaddrinfo(in_environment("MASTER_ADDR").c_str(), kPort, &hints, &place) == 0, "address");
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(place, freeaddrinfo);
  int fd = -1;
  const int one = 1;
  if (rank == 0) {
    const int listener = new_socket();
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    check(::bind(listener, place->ai_addr, place->ai_addrlen) == 0, "bind");
    check(::listen(listener, 1) == 0, "listen");
    fd = ::accept(listener, nullptr, nullptr);
    ::close(listener);
  } else {
    for (int tries = 0; tries < 1000; ++tries) {
      fd = new_socket();
      if (::connect(fd, place->ai_addr, place->ai_addrlen) == 0) break;
      ::close(fd);
      fd = -1;
      ::poll(nullptr, 0, 10);
    }
  }
  check(fd >= 0, "connect");
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

class Bare final : public Library {
 public:
  Bare() : rank_(std::atoi(in_environment("RANK").c_str())), socket_(connect_ranks(rank_)) {}
  ~Bare() override { ::close(socket_); }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int ranks() const override { return 2; }
  void barrier() override { static_cast<void>(max(0)); }

  double max(double value) override {
    double other = 0;
    put(&value, sizeof value);
    get(&other, sizeof other);
    return std::max(value, other);
  }

  std::function<void()> prepare(const Call& call) override {
    switch (call.operation) {
      case Operation::all_reduce:
      case Operation::all_reduce_in_place: return [this, call] { exchange(call); };
      case Operation::barrier: return [this] { barrier(); };
      case Operation::send_recv: {
        const std::size_t bytes = call.count * sizeof(float);
        return round_trip(
            *this, [=, this](int) { put(call.input, bytes); },
            [=, this](int) { get(call.output, bytes); });
      }
      default: return {};
    }
  }

 private:
  /// Returns the number of bytes sent; 0 if none can be sent now.
  std::size_t send_some(const std::byte* data, std::size_t bytes) const {
    const ssize_t sent =
        ::send(socket_, data, std::min(bytes, kMostBytes), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) fail("send");
    return sent < 0 ? 0 : static_cast<std::size_t>(sent);
  }
  std::size_t receive_some(std::byte* to, std::size_t bytes) const {
    const ssize_t got = ::recv(socket_, to, bytes, MSG_DONTWAIT);
    if (got == 0) throw std::runtime_error("the other rank has ended");
    if (got < 0 && errno != EAGAIN) fail("recv");
    return got < 0 ? 0 : static_cast<std::size_t>(got);
  }
  void put(const void* data, std::size_t bytes) const {
    const auto* from = static_cast<const std::byte*>(data);
    for (std::size_t done = 0; done < bytes;) done += send_some(from + done, bytes - done);
  }
  void get(void* data, std::size_t bytes) const {
    auto* to = static_cast<std::byte*>(data);
    for (std::size_t done = 0; done < bytes;) done += receive_some(to + done, bytes - done);
  }

  // The first bytes of an element that has not arrived completely stay at the front of part_.
  void exchange(const Call& call) {
    const auto* input = reinterpret_cast<const std::byte*>(call.input);
    const std::size_t bytes = call.count * sizeof(float);
    std::size_t sent = 0, summed = 0, in_part = 0;
    auto* const part = reinterpret_cast<std::byte*>(part_.data());
    // In place, data that has not been sent yet must not be overwritten.
    const bool in_place = call.input == call.output;
    while (sent < bytes || summed * sizeof(float) < bytes) {
      if (sent < bytes) sent += send_some(input + sent, bytes - sent);
      const std::size_t left = bytes - summed * sizeof(float) - in_part;
      if (left > 0 && in_part < kMostBytes)
        in_part += receive_some(part + in_part, std::min(left, kMostBytes - in_part));
      std::size_t whole = in_part / sizeof(float);
      if (in_place) whole = std::min(whole, sent / sizeof(float) - summed);
      for (std::size_t i = 0; i < whole; ++i)
        call.output[summed + i] = call.input[summed + i] + part_[i];
      summed += whole;
      in_part -= whole * sizeof(float);
      std::memmove(part, part + whole * sizeof(float), in_part);
    }
  }

  const int rank_;
  const int socket_;
  std::vector<float> part_ = std::vector<float>(kMostBytes / sizeof(float));
};

}  // namespace
}  // namespace tutti::compare

int main(int argc, char** argv) {
  return tutti::compare::run_main("bare_bench", [&] {
    if (tutti::compare::in_environment("WORLD_SIZE") != "2") return 0;  // two ranks only
    tutti::compare::Bare bare;
    return tutti::compare::measure(bare, std::span(argv + 1, argv + argc));
  });
}
