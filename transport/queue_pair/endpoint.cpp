#include "transport/queue_pair/endpoint.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <tutti/error.hpp>

#include "common/descriptors.h"

namespace tutti::qp {
namespace {

// The destructor waits for so long while nothing moves and no device is at work, which gives up by
// itself, and for so long in all.
constexpr std::chrono::seconds kLinger{2}, kLongestLinger{60};
constexpr std::chrono::milliseconds kBackgroundProgressPause{100};

// Has an epoll watch a descriptor for `events`. `how` says whether it is added (EPOLL_CTL_ADD) or
// its events are changed (EPOLL_CTL_MOD).
void watch_fd(const Fd& epoll, int fd, void* what, std::uint32_t events, int how) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = what;
  if (epoll_ctl(epoll.get(), how, fd, &event) != 0)
    throw Error(ErrorKind::unavailable,
                fmt::format("cannot watch a connection: {}", std::strerror(errno)));
}

}  // namespace

Endpoint::Endpoint(int size, const Clock& clock, std::vector<std::shared_ptr<Device>> devices,
                   Log* log, std::uint32_t paths)
    : clock_(clock),
      log_(log),
      devices_(std::move(devices)),
      paths_(paths),
      registrations_(std::make_shared<Registrations>(
          Registrations::Limits{},
          [log, name = devices_.front()->name()](const std::string& why) {
            if (log != nullptr)
              log->write(LogLevel::warn,
                         "{}: memory is not read in place, but copied through slots: {}", name,
                         why);
          })),
      epoll_(make_epoll()),
      peers_(static_cast<std::size_t>(size)) {
  assert(size > 0);
  for (const auto& device : devices_)
    watch_fd(epoll_, device->event_fd(), nullptr, EPOLLIN, EPOLL_CTL_ADD);
}

Endpoint::~Endpoint() {
  if (getpid() == owner_) {
    linger();
    write_figures();
    return;
  }
  // In a forked child, the kernel's objects are those of the parent, which goes on using them, so
  // nothing here may destroy them.
  for (Peer& peer : peers_) static_cast<void>(peer.connection.release());
  static_cast<void>(new std::vector(devices_));
  static_cast<void>(new std::shared_ptr(registrations_));
}

void Endpoint::write_figures() const {
  if (log_ == nullptr) return;
  Connection::Traffic all;
  bool connected = false;
  for (const Peer& peer : peers_) {
    if (peer.connection == nullptr) continue;
    connected = true;
    const Connection::Traffic its = peer.connection->traffic();
    all.slot_bytes += its.slot_bytes;
    all.offers += its.offers;
    all.declined += its.declined;
    all.read_bytes += its.read_bytes;
  }
  if (!connected) return;
  const Registrations::Counters counters = registrations_->counters();
  log_->write(LogLevel::debug,
              "{}: {} bytes were sent through slots and {} read in place; {} messages were "
              "offered, {} of them declined; memory was registered {} times, used again {} times, "
              "evicted {} times, refused {} times",
              devices_.front()->name(), all.slot_bytes, all.read_bytes, all.offers, all.declined,
              counters.made, counters.hits, counters.evicted, counters.refused);
}

void Endpoint::add_peer(int rank, std::unique_ptr<Connection> connection) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  assert(peer.connection == nullptr && connection != nullptr);
  watch_fd(epoll_, connection->control_fd(), connection.get(), EPOLLIN | EPOLLRDHUP, EPOLL_CTL_ADD);
  const std::size_t slots = connection->slot_bytes();
  log(slots > 0 ? LogLevel::info : LogLevel::debug,
      fmt::format("rank {} is reached over {}{}", rank, connection->paths_used(),
                  slots > 0 ? "" : " until there is a message between the two"));
  peer.connection = std::move(connection);
}

// A socket that cannot be watched for room any more is looked at with the next call.
void Endpoint::watch(Connection& connection, int control, bool writable) const {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  if (writable) event.events |= EPOLLOUT;
  event.data.ptr = &connection;
  static_cast<void>(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, control, &event));
}

void Endpoint::arm() {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  for (const Peer& peer : peers_)
    if (peer.connection != nullptr) peer.connection->arm();
}

void Endpoint::progress() {
  take_events();
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    Connection* const connection = peers_[rank].connection.get();
    if (connection == nullptr) continue;
    if (lifelines_ && lifelines_->has_ended(rank))
      connection->end_with_peer("its process has ended");
    connection->pump();
    if (connection->how_ended() == Connection::End::lost) tell_of_loss(peers_[rank]);
  }
}

// The peer may not have noticed that the path between the two devices fails. The end of the control
// connection says so.
void Endpoint::tell_of_loss(Peer& peer) {
  const std::lock_guard lock(control_mutex_);
  if (std::exchange(peer.told_of_loss, true)) return;
  const int control = peer.connection->control_fd();
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, control, nullptr);
  shutdown(control, SHUT_RDWR);
}

void Endpoint::take_events() {
  const std::unique_lock lock(control_mutex_, std::try_to_lock);
  if (!lock) return;  // another thread takes them
  std::array<epoll_event, 16> events{};
  const int count = epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    // A control connection stays watched until the connection is lost, so that a thread that sleeps
    // wakes to make it so.
    if (events[i].data.ptr != nullptr) {
      static_cast<Connection*>(events[i].data.ptr)->read_control();
      continue;
    }
    owners_.clear();
    for (const auto& device : devices_) device->take_events(owners_);
    for (void* const owner : owners_) static_cast<Connection*>(owner)->take_event();
  }
}

void Endpoint::background_progress() {
  const TimePoint now = clock_.now();
  if (now < background_progress_at_.load(std::memory_order_relaxed) + kBackgroundProgressPause)
    return;
  background_progress_at_.store(now, std::memory_order_relaxed);
  progress();
}

void Endpoint::linger() noexcept {
  using Clock = std::chrono::steady_clock;
  const TimePoint longest = Clock::now() + kLongestLinger;
  TimePoint until = Clock::now() + kLinger;
  for (const Peer& peer : peers_) {
    if (peer.connection == nullptr) continue;
    for (std::size_t least = peer.connection->unfinished(); least > 0;) {
      take_events();
      peer.connection->pump();
      const std::size_t left = peer.connection->unfinished();
      const TimePoint now = Clock::now();
      if (left < least || peer.connection->awaits_device())
        until = std::min(now + kLinger, longest);
      least = std::min(left, least);
      if (now >= until) break;
      if (left > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

}  // namespace tutti::qp
