// One peer after the handshake: its board, its bell, its rings, its end.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "transport/context.h"
#include "transport/memory_channel.h"
#include "transport/shm/join.h"
#include "transport/shm/memory.h"

namespace tutti::shm {

/// Own thread only, as the transport.
///
/// Rings are made by their sender when first used, and handed over through the socket. What the
/// socket has no room for waits here until it has.
class Peer {
 public:
  /// What `epoll` says of this peer carries event_tag(): `rank` and which of the two it is.
  enum class Source { socket, process };
  static std::uint64_t event_tag(int rank, Source source) {
    return static_cast<std::uint64_t>(rank) * 2 + (source == Source::process ? 1 : 0);
  }

  Peer(const TransportContext& context, int rank, Link link, const Fd& epoll);

  SendChannel& sender(int number);
  RecvChannel& receiver(int number);

  /// The socket or the process has something to say.
  void hear(Source source);

  /// Tries to hand over what waits; true: nothing does.
  bool flush();
  const Fd& socket() const noexcept { return link_.socket; }

  PeerStatus status() const;
  const Board& board() const noexcept { return *static_cast<const Board*>(board_.data()); }
  void wake() const noexcept { bell_.after_store(); }

 private:
  struct HandOver;
  struct Waiting {
    int number = 0;
    Fd memory;
  };
  struct Sending {
    Mapping memory;
    std::unique_ptr<MemorySendChannel> channel;
  };
  struct Receiving {
    Mapping memory;
    std::unique_ptr<MemoryRecvChannel> channel = std::make_unique<MemoryRecvChannel>();
  };

  void watch(const Fd& fd, Source source, std::uint32_t events, int operation);
  bool drain();  // false: the connection has ended
  void attach(const HandOver& offer, const Fd& memory);
  void end(std::string why);

  const TransportContext context_;
  const int rank_;
  const Fd& epoll_;
  Link link_;
  Mapping board_;
  PeerBell bell_;
  std::string why_lost_;  // empty: connected
  std::deque<Waiting> waiting_;
  SendRings rings_;                     // of senders_
  std::map<int, Sending> senders_;      // by channel number
  std::map<int, Receiving> receivers_;  // by channel number
};

}  // namespace tutti::shm
