#include "transport/tcp/endpoint.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <tutti/error.hpp>

#include "common/descriptors.h"

namespace tutti::tcp {
namespace {

// How long the destructor waits while nothing arrives (time for a packet to be lost three times),
// and how long in all.
constexpr std::chrono::seconds kLinger{2}, kLongestLinger{60};
constexpr std::chrono::milliseconds kBackgroundProgressPause{100};

// Returns how many bytes of those written, with the end of the connection, the peer's machine has
// not acknowledged.
int not_arrived(int socket) {
  int left = 0;
  return ioctl(socket, SIOCOUTQ, &left) != 0 ? 0 : left;
}

// Discards what has arrived, since unread bytes would turn the end of the connection into a reset,
// which can overtake what was written. Returns false where the peer has ended, too, and reads no
// more.
bool throw_away_what_comes(int socket) {
  std::array<char, 16 << 10> bytes;
  ssize_t got = 0;
  do got = recv(socket, bytes.data(), bytes.size(), 0);
  while (got > 0);
  return got < 0 && net::not_now(errno);
}

}  // namespace

Endpoint::Endpoint(int size, const Clock& clock, bool checksum)
    : clock_(clock),
      checksum_(checksum),
      epoll_(make_epoll()),
      peers_(static_cast<std::size_t>(size)) {
  assert(size > 0);
}

Endpoint::~Endpoint() {
  if (getpid() == owner_) linger();  // a forked child only closes its copies
}

void Endpoint::add_peer(int rank, net::Stream stream) {
  assert(this->peer(rank) == nullptr && stream);
  auto& peer = peers_[static_cast<std::size_t>(rank)];
  peer = std::make_unique<Connection>(*this, clock_, std::move(stream), checksum_);
  if (!watch(*peer))
    throw Error(ErrorKind::unavailable,
                fmt::format("cannot watch a connection: {}", std::strerror(errno)));
}

// The epoll is edge-triggered, so that interest in writing need not be switched on and off.
bool Endpoint::watch(Connection& connection) noexcept {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &connection;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.socket(), &event) == 0;
}

void Endpoint::arm() {
  sleepers_.fetch_add(1, std::memory_order_acq_rel);  // Counted first, so that no connection leaves
                                                      // the epoll any more.
  for (const auto& peer : peers_)
    if (peer != nullptr) peer->arm();
}

void Endpoint::forget(const Connection& connection) noexcept {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.socket(), nullptr);
}

void Endpoint::progress() {
  std::array<epoll_event, 16> events{};
  for (int count = static_cast<int>(events.size()); count == static_cast<int>(events.size());) {
    count = epoll_wait(epoll_.get(), events.data(), events.size(), 0);
    for (int i = 0; i < count; ++i) static_cast<Connection*>(events[i].data.ptr)->pump();
  }
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    Connection* const peer = peers_[rank].get();
    if (peer == nullptr) continue;
    if (!peer->is_armed()) peer->pump();
    peer->look_whether_alive();
    if (lifelines_ && lifelines_->has_ended(rank)) peer->end_with_process();
  }
}

void Endpoint::background_progress() {
  const TimePoint now = clock_.now();
  if (now < background_progress_at_.load(std::memory_order_relaxed) + kBackgroundProgressPause)
    return;
  background_progress_at_.store(now, std::memory_order_relaxed);
  progress();
}

void Endpoint::flush() {
  for (const auto& peer : peers_)
    if (peer != nullptr && peer->has_unsent()) peer->flush();
}

void Endpoint::linger() noexcept {
  for (const auto& peer : peers_)
    if (peer != nullptr) peer->say_goodbye();
  using Clock = std::chrono::steady_clock;
  const TimePoint longest = Clock::now() + kLongestLinger;
  TimePoint until = Clock::now() + kLinger;
  for (const auto& peer : peers_) {
    if (peer == nullptr || peer->how_ended() == Connection::End::lost) continue;
    const int socket = peer->socket();
    for (int least = not_arrived(socket); throw_away_what_comes(socket);) {
      const int left = not_arrived(socket);
      const TimePoint now = Clock::now();
      if (left < least) until = std::min(now + kLinger, longest);
      if (left == 0 || now >= until) break;
      least = left;
      pollfd readable{socket, POLLIN, 0};
      poll(&readable, 1, 1);
    }
  }
}

}  // namespace tutti::tcp
