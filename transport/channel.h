// The seam under which all transports look alike: memory, a peer and a deadline; never sockets,
// queue pairs or files.
//
// A channel is an ordered, one-directional FIFO of messages between two ranks, with a window of at
// least two messages of its link's largest_message. Everything here is non-blocking: it says done
// or not yet, and whoever has to wait does so in runtime/wait.h. A channel and its transport are
// used by one thread at a time (whoever owns the communicator's engine).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/capabilities.h"
#include "common/clock.h"
#include "common/wire.h"
#include "transport/memory.h"
#include "transport/segments.h"
#include "transport/status_page.h"

namespace tutti {

class SendRing;
class RecvRing;

struct Span {
  std::byte* data = nullptr;  ///< Never null in what acquire() gives, for no bytes neither.
  std::size_t bytes = 0;
};

class SendChannel {
 public:
  virtual ~SendChannel() = default;

  /// Memory for the next message, to be filled and posted; none while the window is full. Asking
  /// again before post() gives the same memory. Throws `internal` for more than the link's
  /// largest_message.
  virtual std::optional<Span> acquire(std::size_t bytes) = 0;

  /// The kinds of memory from which this channel sends messages without a copy.
  virtual MemoryKinds zero_copy() const noexcept { return {}; }
  /// As acquire(), for a message that is not copied: it is in memory of one of these kinds, and
  /// stays as it is until zero_copy_done(). False: the window is full, or it has to be copied after
  /// all.
  virtual bool acquire_zero_copy(const Memory& message) {
    static_cast<void>(message);
    return false;
  }
  /// Whether nobody reads any more what acquire_zero_copy() was given.
  virtual bool zero_copy_done() const noexcept { return true; }

  /// Sends what acquire() gave out, with `header.length` = its bytes.
  virtual void post(const Header& header) = 0;

  /// The channel's ring where it is plain memory, for the engine's path without virtual calls; else
  /// null.
  virtual SendRing* ring() noexcept { return nullptr; }
};

struct Message {
  const std::byte* data = nullptr;  ///< header.length bytes, valid until release().
  Header header;
  bool lent = false;  ///< The sender's own memory: see Transport::lend().
  bool away = false;  ///< In place of `data`: it has to be fetched.
};

class RecvChannel {
 public:
  virtual ~RecvChannel() = default;

  /// The oldest message not yet released; none while there is none. Peeking twice gives the same
  /// message.
  virtual std::optional<Message> peek() = 0;

  /// Brings the peeked message, which is away, to `to`, or where that is null to memory of the
  /// channel's. Null: not yet; ask again for the same place.
  virtual const std::byte* fetch(std::byte* to) {
    static_cast<void>(to);
    return nullptr;
  }

  /// Gives the peeked message's memory back to the sender.
  virtual void release() = 0;

  virtual RecvRing* ring() noexcept { return nullptr; }
};

/// What Transport::allocate_registered() gives: a segment and its number.
struct Registration {
  std::uint32_t number = 0;
  Segment segment;
};

struct PeerStatus {
  enum class State {
    alive,
    closed,  ///< Has closed its communicator in good order; what it sent before can still be
             ///< received.
    failed,  ///< Says itself that it has failed: its status page says why.
    lost,    ///< Its process or connection is gone; what it sent before may still be received.
    corrupt  ///< What comes from it is not what it sent: nothing more is taken.
  };
  State state = State::alive;
  std::string why;  ///< For lost and corrupt: what was seen ("process 4711 has ended").
  /// The peer's process or connection is gone, whatever state its status page showed before that.
  bool gone = false;
};

/// Some of a transport's ranks, for a communicator of their own.
struct Subset {
  std::vector<int>
      members;   ///< Ranks of the transport that is split, in the order of the new ones.
  int rank = 0;  ///< This rank's place among `members`.
  /// For each member, the number that it gives this subset: 1 or more, and different from the
  /// numbers that it gives all other subsets of these connections. Empty for the ranks that made
  /// the connections.
  std::vector<std::uint32_t> numbers;
  std::size_t data_bytes = 0;  ///< As TransportContext has them.
  std::size_t max_message_bytes = 0;
  StatusPage* status_page = nullptr;

  /// The number by which the connection to `peer` knows this subset: the one that the lower of the
  /// connection's two ends gave, so that no other subset has it on that connection, whatever other
  /// threads split at the same time. Other connections may know the subset by other numbers. 0 for
  /// the ranks that made the connections.
  std::uint32_t id_with(int peer) const {
    if (numbers.empty()) return 0;
    const auto self = static_cast<std::size_t>(rank), other = static_cast<std::size_t>(peer);
    return numbers[members[self] < members[other] ? self : other];
  }
};

/// One way to reach the other ranks of one communicator. Made by the registry; connect() comes
/// first.
class Transport {
 public:
  virtual ~Transport() = default;

  /// What peers need to connect to this rank, as bytes for the store (at most 4 KiB). Empty: they
  /// need nothing.
  virtual std::string address() const { return {}; }

  /// Connects this rank to its peers. `addresses` has the address() of each rank, or nothing where
  /// no rank has one; peers whose address is left empty are reached by another transport, and stay
  /// unconnected here: nothing else is asked of this transport about them. Throws `unavailable`
  /// when a peer cannot be reached this way (and says why), `peer_lost`, or `timeout` naming the
  /// ranks that never came.
  virtual void connect(std::span<const std::string> addresses, TimePoint deadline) = 0;

  /// After connect(): why there is no connection to a peer; empty: there is one. A transport whose
  /// links may_fail says this of single peers, in place of throwing.
  virtual std::string why_unconnected(int peer) const {
    static_cast<void>(peer);
    return {};
  }

  /// What the connection to `peer` can do. Constant once connected.
  virtual const LinkCapabilities& link(int peer) const = 0;

  /// The channel `number` to or from `peer`, made when first asked for. Stays valid until the
  /// transport is destroyed. Throws `unavailable` when memory for it cannot be had.
  virtual SendChannel& sender(int peer, int number) = 0;
  virtual RecvChannel& receiver(int peer, int number) = 0;

  /// Moves what can be moved without waiting: handshakes, bytes, news of peers.
  virtual void progress() = 0;

  /// Whether all that was posted has left: it may wait for room that only calls of this transport
  /// notice. An operation ends when it has, since nothing else may call it for long.
  virtual bool all_left() { return true; }
  virtual bool leaves_at_once() const { return true; }  ///< all_left() need not be asked.

  /// A descriptor (itself pollable) that is readable when progress() would find something that no
  /// doorbell announces: a socket, a peer's end. -1: there is none.
  virtual int wait_fd() const { return -1; }

  /// Around a sleep over wait_fd(): between arm(), which comes before the last look, and disarm()
  /// it is readable for all that progress() would find. At other times a transport may leave that
  /// out, since whoever is awake looks for himself. Any thread; each arm() has its disarm().
  virtual void arm() {}
  virtual void disarm() noexcept {}

  virtual PeerStatus status(int peer) = 0;

  /// This rank's status page, and a peer's: null while it is not here yet (ask again after
  /// progress()).
  virtual StatusPage& own_status_page() = 0;
  virtual const StatusPage* status_page(int peer) = 0;

  /// A peer's as it was within the last second and a half, without asking for it; null: that is not
  /// known.
  virtual const StatusPage* recent_status_page(int peer) { return status_page(peer); }

  /// For peers who ask while this rank's program computes: what progress() does, from any thread,
  /// every half second or so. False: nobody asks, now or later.
  virtual bool background_progress() { return false; }

  /// Wakes `peer` if it sleeps: after own_status_page() has changed in a way that it should see.
  virtual void wake(int peer) = 0;

  /// A transport between the members of `subset` over the same connections; its connect() needs no
  /// addresses. Null: this transport cannot. Both live and are used independently, each by one
  /// thread at a time; the connections end with the last of them.
  virtual std::unique_ptr<Transport> split(const Subset&) { return nullptr; }

  /// New memory, all zero, which is registered with the peers that can map it: they read and write
  /// it where it lies. None: this transport cannot. Throws `unavailable`. Memory is registered
  /// until unregister(), or until the transport ends.
  virtual std::optional<Registration> allocate_registered(std::size_t) { return std::nullopt; }
  /// Ends a registration. Peers are told and unmap the memory some time later; until then what they
  /// have mapped stays readable to them, and this rank's own mapping lives as long as its Segment.
  virtual void unregister(std::uint32_t) noexcept {}
  /// All that this rank has registered; null: it never has anything.
  virtual const Segments* registered() const noexcept { return nullptr; }

  /// Takes memory of this rank's program back from messages to and from `peer` that are under way:
  /// when it returns, this process reads and writes it no more for them. A peer that reads
  /// registered memory by itself may go on for a moment, and believes nothing of what it has read
  /// once this rank's status page says that it has failed; so that has to be said first.
  virtual void revoke(int peer) noexcept { static_cast<void>(peer); }

  /// Whether collectives should send from host memory without a copy, where some channel can: that
  /// costs less than the copy.
  virtual bool prefers_zero_copy() const noexcept { return false; }

  /// Memory that it holds for messages and status pages, shared with peers or its own, in bytes.
  virtual std::size_t memory_bytes() const { return 0; }

  /// Says goodbye: peers see `closed`. Afterwards nobody touches user memory and no message is
  /// sent. Idempotent.
  virtual void close() noexcept = 0;
};

}  // namespace tutti
