#include "transport/shm/peer.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include <tutti/error.hpp>

namespace tutti::shm {

struct Peer::HandOver {
  static constexpr std::uint64_t kMagic = 0x7475747469726e67;  // "tuttirng"

  std::uint64_t magic = kMagic;
  std::uint64_t data_bytes = 0;
  std::int32_t number = 0;
  std::int32_t zero = 0;
};

Peer::Peer(const TransportContext& context, int rank, Link link, const Fd& epoll)
    : context_(context), rank_(rank), epoll_(epoll), link_(std::move(link)) {
  board_ = map_received(link_.board, sizeof(Board), Access::read,
                        fmt::format("the board of rank {}", rank));
  link_.board.reset();
  if (link_.bell)
    bell_ = {&board().sleepers, link_.bell.get(), !(link_.membarrier && context.membarrier)};
  watch(link_.socket, Source::socket, EPOLLIN, EPOLL_CTL_ADD);
  if (link_.process) watch(link_.process, Source::process, EPOLLIN, EPOLL_CTL_ADD);
}

void Peer::watch(const Fd& fd, Source source, std::uint32_t events, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = event_tag(rank_, source);
  if (epoll_ctl(epoll_.get(), operation, fd.get(), &event) != 0)
    throw Error(ErrorKind::unavailable, fmt::format("rank {} cannot watch rank {}: {}",
                                                    context_.rank, rank_, std::strerror(errno)));
}

SendChannel& Peer::sender(int number) {
  if (const auto found = senders_.find(number); found != senders_.end())
    return *found->second.channel;
  Memory memory = make_memory(RingMemory::bytes(context_.data_bytes), Access::write,
                              fmt::format("a ring from rank {} to rank {}", context_.rank, rank_));
  Sending& sending = senders_[number];
  sending.memory = std::move(memory.mapping);
  sending.channel =
      std::make_unique<MemorySendChannel>(static_cast<RingMemory*>(sending.memory.data()),
                                          context_.data_bytes, context_.max_message_bytes, bell_);
  rings_[number] = sending.channel->ring();
  if (!link_.socket) return *sending.channel;  // to a peer that is gone: nobody will read it
  waiting_.push_back({number, std::move(memory.fd)});
  if (waiting_.size() == 1 && !flush())
    watch(link_.socket, Source::socket, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
  return *sending.channel;
}

RecvChannel& Peer::receiver(int number) { return *receivers_[number].channel; }

bool Peer::flush() {
  while (!waiting_.empty()) {
    HandOver offer;
    offer.data_bytes = context_.data_bytes;
    offer.number = waiting_.front().number;
    const int fd = waiting_.front().memory.get();
    if (send_packet(link_.socket, offer, std::span(&fd, 1)) == Sent::later) return false;
    waiting_.pop_front();  // broken: hear() finds out and says so
  }
  return true;
}

void Peer::hear(Source source) {
  if (!link_.socket) return;  // the other source has said it all, in the same round
  if (!waiting_.empty() && flush()) watch(link_.socket, Source::socket, EPOLLIN, EPOLL_CTL_MOD);
  const bool connected = drain();  // before the end is believed: it may have sent rings
  if (!connected || source == Source::process)
    end(fmt::format("process {} of rank {} has ended", link_.pid, rank_));
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
    if (offer.magic != HandOver::kMagic || offer.data_bytes != context_.data_bytes ||
        descriptors.count != 1 || receivers_[offer.number].channel->attached())
      throw Error(ErrorKind::corrupt,
                  fmt::format("rank {} sent rank {} something else than a new ring of {} bytes: do "
                              "all ranks run the same version?",
                              rank_, context_.rank, context_.data_bytes));
    attach(offer, descriptors.fds[0]);
  }
}

void Peer::attach(const HandOver& offer, const Fd& memory) {
  Receiving& receiving = receivers_[offer.number];
  receiving.memory = map_received(
      memory, RingMemory::bytes(offer.data_bytes), Access::write,
      fmt::format("ring {} from rank {} to rank {}", offer.number, rank_, context_.rank));
  receiving.channel->attach(static_cast<RingMemory*>(receiving.memory.data()), offer.data_bytes,
                            bell_, offer.number, &rings_);
}

// Taken out of epoll by name: a forked child may hold the same socket, and closing one's own
// descriptor would then leave it there, readable for ever.
void Peer::end(std::string why) {
  assert(!why.empty() && link_.socket);
  why_lost_ = std::move(why);
  for (Fd* fd : {&link_.socket, &link_.process}) {
    if (*fd) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd->get(), nullptr);
    fd->reset();
  }
  waiting_.clear();
}

// The board comes first: who closed in good order and then ended is closed, not lost.
PeerStatus Peer::status() const {
  PeerStatus status = status_on(board());
  if (status.state == PeerStatus::State::alive && !why_lost_.empty())
    return {PeerStatus::State::lost, why_lost_};
  return status;
}

}  // namespace tutti::shm
