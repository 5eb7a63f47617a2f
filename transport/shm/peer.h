// One peer after the handshake: its doorbell, the detection of its end, and a status page and rings
// for each communicator that this rank shares with it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "transport/context.h"
#include "transport/ring/memory_channel.h"
#include "transport/shm/join.h"
#include "transport/shm/memory.h"

namespace tutti::shm {

/// The connection to one peer. It is used by one thread at a time, under the Endpoint's lock; each
/// channel belongs to its communicator's thread.
///
/// A ring is made by its sender when it is first used, and its descriptor is sent through the
/// socket, as those of status pages are. What the socket has no room for waits in a queue here. A
/// group is one communicator's part of the connection. Its id is 0 for the communicator that made
/// the connection, and Subset::id_with() this peer otherwise.
///
/// When one of the two ranks makes a group before the other, the status page that it hands over is
/// kept until the other makes it, too. The rank that leaves a group first says so, and drops what
/// still comes for it until the other rank has left as well.
class Peer {
 public:
  /// The events of this peer in `epoll` carry event_tag(), which encodes `rank` and which of the
  /// two descriptors is ready.
  enum class Source { socket, process };
  static std::uint64_t event_tag(int rank, Source source) {
    return static_cast<std::uint64_t>(rank) * 2 + (source == Source::process ? 1 : 0);
  }

  /// `context` is that of group 0, which exists from the start. `allowance` grants the memory of
  /// rings, and outlives this object.
  Peer(const TransportContext& context, int rank, Link link, const Fd& epoll,
       const Segments& segments, Allowance& allowance);

  /// Adds group `id`, in which this rank shows `status_page`, and takes up what the peer has handed
  /// over for it already. `segments` holds the memory that this rank has registered, and outlives
  /// the group.
  void add_group(std::uint32_t id, const Subset& subset, int status_page, const Segments& segments);
  /// Frees the group's status page and rings; the peer keeps its own view of them.
  void remove_group(std::uint32_t id) noexcept;
  /// Removes the group for good: tells the peer, and drops what it still hands over for the group.
  void leave_group(std::uint32_t id) noexcept;

  SendChannel& sender(std::uint32_t id, int number);
  RecvChannel& receiver(std::uint32_t id, int number);

  /// Register memory of this rank with the peer in group `id`, and unregister it.
  void register_segment(std::uint32_t id, std::uint32_t segment, std::size_t bytes,
                        const Fd& memory);
  void unregister(std::uint32_t id, std::uint32_t segment);

  /// Returns the peer's status page in group `id`, or null while it has not arrived.
  const StatusPage* status_page(std::uint32_t id) const;
  /// Returns the doorbell that wakes the peer in group `id`, once its status page has arrived.
  PeerBell bell(std::uint32_t id) const;
  std::size_t memory_bytes(std::uint32_t id) const;

  /// Handles an event of the socket or the process.
  void handle_event(Source source);

  /// Tries to hand over what is queued; returns true when nothing is left in the queue.
  bool flush();
  /// Tries the same; returns true when nothing of group `id` is left in the queue.
  bool flush(std::uint32_t id);
  const Fd& socket() const noexcept { return link_.socket; }

  /// Returns the peer's status in group `id`, whose status page has arrived.
  PeerStatus status(std::uint32_t id) const;
  /// Returns why the connection has ended, or an empty string while it has not.
  const std::string& why_lost() const noexcept { return why_lost_; }

 private:
  struct HandOver;
  struct Waiting {
    std::uint32_t id = 0;
    int number = 0;  // a channel's number, or one of the constants for other things
    std::size_t bytes = 0;
    Fd memory;  // none where something is taken back or the group is left
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
    std::size_t data_bytes = 0;  // 0 while only the peer has made the group
    std::size_t max_message_bytes = 0;
    bool left = false;  // The peer has left, so nothing more comes for the group.
    Mapping status_page;
    const Segments* own_segments = nullptr;  // memory that this rank has registered
    Segments peer_segments;                  // memory that the peer has registered
    SendRings rings;                         // the rings of `senders`
    std::map<int, Sending> senders;          // by channel number
    std::map<int, Receiving> receivers;      // by channel number
  };

  [[maybe_unused]] bool is_sound() const;
  void watch(const Fd& fd, Source source, std::uint32_t events, int operation);
  void hand_over(Waiting what);
  bool drain();  // Returns false where the connection has ended.
  void sort(const HandOver& offer, const Fd& memory);
  void take(Group& group, const HandOver& offer, const Fd& memory);
  Group& early_group(std::uint32_t id);
  void map_segment(Group& group, const HandOver& offer, const Fd& memory) const;
  bool all_memory(const RingMemory& ring) const noexcept;
  [[noreturn]] void refuse_offer() const;
  void end(std::string why);
  void notify_all_groups() const;

  const TransportContext context_;
  const int rank_;
  const Fd& epoll_;
  Allowance& allowance_;
  Link link_;
  PeerMemory memory_;
  std::string why_lost_;
  std::deque<Waiting> waiting_;
  std::map<std::uint32_t, Group> groups_;
  std::deque<std::uint32_t> early_;  // Groups that only the peer has made, the oldest first.
  std::set<std::uint32_t> ended_;    // Groups that this rank has left, and the peer has not yet.
};

}  // namespace tutti::shm
