#include "transport/shm/peer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include <tutti/error.hpp>

namespace tutti::shm {
namespace {

// These stand in place of a channel's number.
constexpr std::int32_t kStatusPage = -1;
constexpr std::int32_t kRegister = -2;
constexpr std::int32_t kTakeBack = -3;
constexpr std::int32_t kLeave = -4;
static_assert(kStatusPage < 0 && kRegister < 0 && kTakeBack < 0 && kLeave < 0,
              "numbers of channels are not negative");

bool brings_memory(std::int32_t number) { return number != kTakeBack && number != kLeave; }

// The most groups that only the peer has made. Each holds a status page and nothing else, since
// rings are handed over once both sides have made the group. There are several where several
// threads split communicators at the same time, or where this rank failed to make its part.
constexpr std::size_t kMostEarlyGroups = 1024;

Fd duplicate(int fd) { return Fd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

}  // namespace

struct Peer::HandOver {
  static constexpr std::uint64_t kMagic = 0x7475747469726e67;  // "tuttirng"

  std::uint64_t magic = kMagic;
  std::uint64_t bytes = 0;  // of a ring's payload memory, a status page or a segment
  std::uint32_t group = 0;
  std::int32_t number = 0;
  std::uint64_t segment = 0;
};

Peer::Peer(const TransportContext& context, int rank, Link link, const Fd& epoll,
           const Segments& segments, Allowance& allowance)
    : context_(context), rank_(rank), epoll_(epoll), allowance_(allowance), link_(std::move(link)) {
  static_assert(sizeof(HandOver) == 32 && offsetof(HandOver, group) == 16 &&
                offsetof(HandOver, segment) == 24);
  assert(rank != context.rank && link_.socket && link_.status_page);
  Group& first = groups_[0];
  first.data_bytes = context.data_bytes;
  first.max_message_bytes = context.max_message_bytes;
  first.own_segments = &segments;
  first.status_page = map_received(link_.status_page, sizeof(StatusPage), Access::read,
                                   fmt::format("the board of rank {}", rank));
  link_.status_page.reset();
  watch(link_.socket, Source::socket, EPOLLIN, EPOLL_CTL_ADD);
  if (!link_.process) return;
  watch(link_.process, Source::process, EPOLLIN, EPOLL_CTL_ADD);
  memory_ = PeerMemory(link_.pid, link_.process.get());
}

// Whether nothing waits for a peer that is gone, and why_lost_ says why it is gone.
bool Peer::is_sound() const {
  const bool connected = static_cast<bool>(link_.socket);
  return connected == why_lost_.empty() && (connected || waiting_.empty()) &&
         early_.size() <= kMostEarlyGroups;
}

void Peer::watch(const Fd& fd, Source source, std::uint32_t events, int operation) {
  assert(fd);
  epoll_event event{};
  event.events = events;
  event.data.u64 = event_tag(rank_, source);
  if (epoll_ctl(epoll_.get(), operation, fd.get(), &event) != 0)
    throw Error(ErrorKind::unavailable, fmt::format("rank {} cannot watch rank {}: {}",
                                                    context_.rank, rank_, std::strerror(errno)));
}

void Peer::add_group(std::uint32_t id, const Subset& subset, int status_page,
                     const Segments& segments) {
  assert(id != 0 && subset.data_bytes > 0);
  Group& group = groups_[id];
  assert(group.data_bytes == 0);
  group.data_bytes = subset.data_bytes;
  group.max_message_bytes = subset.max_message_bytes;
  group.own_segments = &segments;
  std::erase(early_, id);
  hand_over({id, kStatusPage, sizeof(StatusPage), duplicate(status_page)});
}

void Peer::register_segment(std::uint32_t id, std::uint32_t segment, std::size_t bytes,
                            const Fd& memory) {
  assert(segment != 0 && segment != kAllMemory && bytes > 0);
  hand_over({id, kRegister, bytes, duplicate(memory.get()), segment});
}

void Peer::unregister(std::uint32_t id, std::uint32_t segment) {
  assert(segment != 0);
  hand_over({id, kTakeBack, 0, Fd(), segment});
}

void Peer::remove_group(std::uint32_t id) noexcept { groups_.erase(id); }

void Peer::leave_group(std::uint32_t id) noexcept {
  const auto group = groups_.find(id);
  const bool left = group != groups_.end() && group->second.left;
  remove_group(id);
  try {
    if (!left && link_.socket) ended_.insert(id);
    hand_over({id, kLeave, 0, Fd()});
  } catch (const std::exception&) {
    // There was no memory to record this. What the peer still hands over is then treated as
    // belonging to a group that this rank has not made yet, and the peer is not told that this rank
    // has left.
  }
}

const StatusPage* Peer::status_page(std::uint32_t id) const {
  const auto group = groups_.find(id);
  return group == groups_.end() ? nullptr
                                : static_cast<const StatusPage*>(group->second.status_page.data());
}

PeerBell Peer::bell(std::uint32_t id) const {
  const StatusPage* status_page = this->status_page(id);
  if (!link_.bell || status_page == nullptr) return {};
  return {&status_page->sleepers, link_.bell.get(), !(link_.membarrier && context_.membarrier())};
}

std::size_t Peer::memory_bytes(std::uint32_t id) const {
  const Group& group = groups_.at(id);
  std::size_t bytes = group.status_page.bytes();
  for (const auto& [number, sending] : group.senders) bytes += sending.memory.bytes();
  return bytes;
}

SendChannel& Peer::sender(std::uint32_t id, int number) {
  Group& group = groups_.at(id);
  assert(number >= 0 && group.data_bytes > 0);
  if (const auto found = group.senders.find(number); found != group.senders.end())
    return *found->second.channel;
  Memory memory =
      make_memory(RingMemory::bytes(group.data_bytes), Access::write,
                  fmt::format("a ring from rank {} to rank {}", context_.rank, rank_), allowance_);
  Sending& sending = group.senders[number];
  sending.memory = std::move(memory.mapping);
  auto* ring = static_cast<RingMemory*>(sending.memory.data());
  ring->home = reinterpret_cast<std::uintptr_t>(ring);
  sending.channel = std::make_unique<MemorySendChannel>(ring, group.data_bytes,
                                                        group.max_message_bytes, bell(id));
  group.rings[number] = sending.channel->ring();
  hand_over({id, number, group.data_bytes, std::move(memory.fd)});
  return *sending.channel;
}

RecvChannel& Peer::receiver(std::uint32_t id, int number) {
  assert(number >= 0);
  return *groups_.at(id).receivers[number].channel;
}

void Peer::hand_over(Waiting what) {
  if (!link_.socket) return;  // The peer is gone, so nobody would read it.
  waiting_.push_back(std::move(what));
  if (waiting_.size() == 1 && !flush())
    watch(link_.socket, Source::socket, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
}

bool Peer::flush() {
  assert(is_sound());
  while (!waiting_.empty()) {
    const Waiting& first = waiting_.front();
    const HandOver offer{HandOver::kMagic, first.bytes, first.id, first.number, first.segment};
    const int fd = first.memory.get();
    const std::span<const int> fds(&fd, first.memory ? 1 : 0);
    if (send_packet(link_.socket, offer, fds) == Sent::later) return false;
    waiting_
        .pop_front();  // Where the socket is broken, handle_event() finds that out and reports it.
  }
  return true;
}

bool Peer::flush(std::uint32_t id) {
  return flush() || std::none_of(waiting_.begin(), waiting_.end(),
                                 [&](const Waiting& what) { return what.id == id; });
}

void Peer::handle_event(Source source) {
  if (!link_.socket) return;  // An event of the other source in the same round has handled it all.
  if (!waiting_.empty() && flush()) watch(link_.socket, Source::socket, EPOLLIN, EPOLL_CTL_MOD);
  // The socket is read before the end is handled, since the peer may have sent rings before it
  // ended.
  const bool connected = drain();
  if (!connected || source == Source::process)
    end(fmt::format("process {} of rank {} has ended", link_.pid, rank_));
  assert(is_sound());
}

bool Peer::drain() {
  for (;;) {
    HandOver offer;
    Descriptors descriptors;
    switch (receive_packet(link_.socket, offer, descriptors)) {
      case Received::nothing: return true;
      case Received::closed: return false;
      case Received::cut:
        throw Error(ErrorKind::unavailable,
                    fmt::format("rank {} has no room for the descriptor of a ring from rank {}; "
                                "raise the limit of open files (ulimit -n)",
                                context_.rank, rank_));
      case Received::garbage: offer.magic = 0; break;
      case Received::packet: break;
    }
    if (offer.magic != HandOver::kMagic ||
        descriptors.count != (brings_memory(offer.number) ? 1 : 0))
      refuse_offer();
    sort(offer, descriptors.fds[0]);
  }
}

// Processes what the peer has handed over. What arrives for an unknown group is for one that this
// rank has left, or for one that it has not made yet, for which the status page arrives first. The
// id does not tell which of the two, since threads that split communicators at the same time make
// their groups in any order.
void Peer::sort(const HandOver& offer, const Fd& memory) {
  if (const auto group = groups_.find(offer.group); group != groups_.end())
    take(group->second, offer, memory);
  else if (offer.number == kLeave)
    ended_.erase(offer.group);
  else if (offer.number == kStatusPage && !ended_.contains(offer.group))
    take(early_group(offer.group), offer, memory);
}

Peer::Group& Peer::early_group(std::uint32_t id) {
  if (early_.size() == kMostEarlyGroups) {
    groups_.erase(early_.front());
    early_.pop_front();
  }
  assert(early_.size() < kMostEarlyGroups && !groups_.contains(id) && !ended_.contains(id));
  early_.push_back(id);
  return groups_[id];
}

// A peer hands over nothing but its status page until it has got the one of this rank.
void Peer::take(Group& group, const HandOver& offer, const Fd& memory) {
  if (offer.number == kLeave) {
    group.left = true;
    return;
  }
  if (offer.number == kStatusPage) {
    if (offer.bytes != sizeof(StatusPage) || group.status_page.data() != nullptr) refuse_offer();
    group.status_page = map_received(memory, sizeof(StatusPage), Access::read,
                                     fmt::format("the board of rank {}", rank_));
    return notify_all_groups();
  }
  if (group.data_bytes == 0) refuse_offer();
  if (offer.number == kRegister) return map_segment(group, offer, memory);
  if (offer.number == kTakeBack)
    return group.peer_segments.remove(static_cast<std::uint32_t>(offer.segment));
  const bool ring = offer.number >= 0 && offer.number <= kMostChannel;
  if (!ring || offer.bytes != group.data_bytes || group.status_page.data() == nullptr)
    refuse_offer();
  Receiving& receiving = group.receivers[offer.number];
  if (receiving.channel->attached()) refuse_offer();
  receiving.memory = map_received(
      memory, RingMemory::bytes(offer.bytes), Access::write,
      fmt::format("ring {} from rank {} to rank {}", offer.number, rank_, context_.rank));
  auto* shared = static_cast<RingMemory*>(receiving.memory.data());
  receiving.channel->attach(shared, group.data_bytes, bell(offer.group), offer.number,
                            {&group.rings, &group.peer_segments, group.own_segments,
                             status_page(offer.group), all_memory(*shared) ? &memory_ : nullptr});
  notify_all_groups();
}

// Whether the kernel lets this rank read the peer's memory. To find out, it reads `ring` at its
// address in the peer, whose contents it knows.
bool Peer::all_memory(const RingMemory& ring) const noexcept {
  static constexpr std::size_t kHome = offsetof(RingMemory, home);
  std::uint64_t home = 0;
  const std::uint64_t said = ring.home;
  return said != 0 && memory_.read(said + kHome, &home, sizeof home) == PeerMemory::Read::done &&
         home == said;
}

void Peer::map_segment(Group& group, const HandOver& offer, const Fd& memory) const {
  const auto mapping = std::make_shared<Mapping>(
      map_received(memory, offer.bytes, Access::write,
                   fmt::format("a buffer of rank {} for rank {}", rank_, context_.rank)));
  assert(mapping->bytes() == offer.bytes);
  const std::shared_ptr<std::byte> data(mapping, static_cast<std::byte*>(mapping->data()));
  if (!group.peer_segments.add(static_cast<std::uint32_t>(offer.segment), {data, offer.bytes}))
    refuse_offer();
}

void Peer::refuse_offer() const {
  throw Error(ErrorKind::corrupt,
              fmt::format("rank {} sent rank {} something else than a board or a new ring of the "
                          "agreed size: do all ranks run the same version?",
                          rank_, context_.rank));
}

// Ends the connection. The descriptors are removed from the epoll explicitly: a forked child may
// hold the same socket, and then it would stay in the epoll, readable for ever, although this
// process has closed its descriptor.
void Peer::end(std::string why) {
  assert(!why.empty() && link_.socket);
  why_lost_ = std::move(why);
  for (const Fd* fd : {&link_.socket, &link_.process})
    if (*fd) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd->get(), nullptr);
  link_.socket.reset();  // link_.process stays open, since PeerMemory uses it.
  waiting_.clear();
  ended_.clear();
  notify_all_groups();
}

// Wakes the sleeping threads of all communicators of this process. They share their connections, so
// that news which one thread has taken from a socket wakes no other thread.
void Peer::notify_all_groups() const {
  if (context_.doorbell != nullptr) context_.doorbell->ring();
}

// The status page has precedence: a peer that closed in good order and then ended is closed, not
// lost.
PeerStatus Peer::status(std::uint32_t id) const {
  assert(status_page(id) != nullptr);
  PeerStatus status = status_on(*status_page(id));
  status.gone = status.deaf = !why_lost_.empty();
  if (status.state == PeerStatus::State::alive && status.gone) {
    status.state = PeerStatus::State::lost;
    status.why = why_lost_;
  }
  return status;
}

}  // namespace tutti::shm
