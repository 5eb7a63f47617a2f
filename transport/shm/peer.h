// One peer after the handshake: its bell, its end, and for each communicator that this rank shares
// with it a status page and rings.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "transport/context.h"
#include "transport/memory_channel.h"
#include "transport/shm/join.h"
#include "transport/shm/memory.h"

namespace tutti::shm {

/// One thread at a time (Endpoint's lock); channels belong to their communicator's.
///
/// Rings are made by their sender when first used, and handed over through the socket, as status
/// pages are. What the socket has no room for waits here until it has. A group is one
/// communicator's part, known by its id: 0 for the one that made the connection, else
/// Subset::id_with() this peer.
///
/// When one of the two ranks makes a group before the other, the status page that it hands over is
/// kept until the other makes it, too. The rank that leaves a group first says so, and drops what
/// still comes for it until the other rank has left as well.
class Peer {
 public:
  /// What `epoll` says of this peer carries event_tag(): `rank` and which of the two it is.
  enum class Source { socket, process };
  static std::uint64_t event_tag(int rank, Source source) {
    return static_cast<std::uint64_t>(rank) * 2 + (source == Source::process ? 1 : 0);
  }

  /// `context`: of group 0, which is there at once.
  Peer(const TransportContext& context, int rank, Link link, const Fd& epoll,
       const Segments& segments);

  /// Adds group `id`, whose status page here is `status_page`. What the peer has handed over
  /// already is taken up. `segments`: that this rank lends; they outlive the group.
  void add_group(std::uint32_t id, const Subset& subset, const Fd& status_page,
                 const Segments& segments);
  /// Frees the group's status page and rings; the peer keeps its own view of them.
  void remove_group(std::uint32_t id) noexcept;
  /// Removes the group for good: tells the peer, and drops what it still hands over for the group.
  void leave_group(std::uint32_t id) noexcept;

  SendChannel& sender(std::uint32_t id, int number);
  RecvChannel& receiver(std::uint32_t id, int number);

  /// This rank lends the peer memory in group `id`, or takes it back.
  void lend(std::uint32_t id, std::uint32_t segment, std::size_t bytes, const Fd& memory);
  void take_back(std::uint32_t id, std::uint32_t segment);

  /// The peer's status page in group `id`; null: not here yet.
  const StatusPage* status_page(std::uint32_t id) const;
  /// How to wake the peer in group `id`, once its status page is here.
  PeerBell bell(std::uint32_t id) const;
  std::size_t memory_bytes(std::uint32_t id) const;

  /// The socket or the process has something to say.
  void hear(Source source);

  /// Tries to hand over what waits; true: nothing does.
  bool flush();
  /// Tries the same; returns true when nothing of group `id` waits to be handed over.
  bool flush(std::uint32_t id);
  const Fd& socket() const noexcept { return link_.socket; }

  /// In group `id`, whose status page is here.
  PeerStatus status(std::uint32_t id) const;
  /// Why the connection has ended; empty: it has not.
  const std::string& why_lost() const noexcept { return why_lost_; }

 private:
  struct HandOver;
  struct Waiting {
    std::uint32_t id = 0;
    int number = 0;  // of a channel, or what else it is
    std::size_t bytes = 0;
    Fd memory;  // none: something is taken back, or the group is left
    std::uint32_t segment = 0;
  };
  struct Sending {
    Mapping memory;
    std::unique_ptr<MemorySendChannel> channel;
  };
  struct Receiving {
    Mapping memory;
    std::unique_ptr<MemoryRecvChannel> channel = std::make_unique<MemoryRecvChannel>();
  };
  struct Group {
    std::size_t data_bytes = 0;  // 0: this rank has not made it yet, the peer has
    std::size_t max_message_bytes = 0;
    bool left = false;  // The peer has left, so nothing more comes for the group.
    Mapping status_page;
    const Segments* lent = nullptr;      // by this rank
    Segments borrowed;                   // from the peer
    SendRings rings;                     // of `senders`
    std::map<int, Sending> senders;      // by channel number
    std::map<int, Receiving> receivers;  // by channel number
  };

  void watch(const Fd& fd, Source source, std::uint32_t events, int operation);
  void hand_over(Waiting what);
  bool drain();  // false: the connection has ended
  void sort(const HandOver& offer, const Fd& memory);
  void take(Group& group, const HandOver& offer, const Fd& memory);
  Group& early_group(std::uint32_t id);
  void borrow(Group& group, const HandOver& offer, const Fd& memory) const;
  bool all_memory(const RingMemory& ring) const noexcept;
  void check_size(const Group& group, std::size_t data_bytes) const;
  [[noreturn]] void refuse_offer() const;
  void end(std::string why);
  void notify_all_groups() const;

  const TransportContext context_;
  const int rank_;
  const Fd& epoll_;
  Link link_;
  PeerMemory memory_;
  std::string why_lost_;
  std::deque<Waiting> waiting_;
  std::map<std::uint32_t, Group> groups_;
  std::deque<std::uint32_t> early_;  // Groups that only the peer has made, the oldest first.
  std::set<std::uint32_t> ended_;    // Groups that this rank has left, and the peer has not yet.
};

}  // namespace tutti::shm
