// The interface of a transport. It speaks of memory, peers and deadlines, and never of sockets,
// queue pairs or files, so that all transports look alike from above.
//
// A channel is an ordered, one-directional FIFO of messages between two ranks. Its window is the
// number of messages that the sender may have posted and the receiver has not yet released; it
// holds at least two messages of the link's largest_message bytes. No function blocks, except
// connect(), which waits until its deadline: each reports whether it is done, and a caller that has
// to wait uses runtime/wait.h. A channel and its transport may be used by one thread at a time,
// which is the thread that runs the communicator's engine; functions that any thread may call say
// so.
#pragma once

#include <algorithm>
#include <cassert>
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
#include "common/fd.h"
#include "common/wire.h"
#include "transport/memory.h"
#include "transport/segments.h"
#include "transport/status_page.h"

namespace tutti {

class SendRing;
class RecvRing;

/// The highest number of a channel.
inline constexpr int kMostChannel = 1 << 20;

struct Span {
  std::byte* data = nullptr;  ///< acquire() never returns null here, not even for zero bytes.
  std::size_t bytes = 0;
};

class SendChannel {
 public:
  virtual ~SendChannel() = default;

  /// Returns memory for the next message, which the caller fills and then posts, or none while the
  /// window is full. A second call before post() returns the same memory. Throws `internal` where
  /// `bytes` exceeds the link's largest_message.
  virtual std::optional<Span> acquire(std::size_t bytes) = 0;

  /// The kinds of memory from which this channel sends messages without a copy.
  virtual MemoryKinds zero_copy() const noexcept { return {}; }
  /// Does what acquire() does for a message that is sent without a copy. The message lies in memory
  /// of one of the kinds that zero_copy() names, and the caller must not change it until
  /// zero_copy_done(). Returns false where the window is full, or where this message has to be
  /// copied all the same.
  virtual bool acquire_zero_copy(const Memory& message) {
    static_cast<void>(message);
    return false;
  }
  /// Whether the messages given to acquire_zero_copy() have been read, so that their memory may be
  /// changed.
  virtual bool zero_copy_done() const noexcept { return true; }

  /// Sends the message that was acquired last; `header.length` is its number of bytes.
  virtual void post(const Header& header) = 0;

  /// Returns the channel's ring where the channel is plain memory, so that the engine can use it
  /// without virtual calls, and null otherwise.
  virtual SendRing* ring() noexcept { return nullptr; }
};

struct Message {
  /// Points to header.length bytes, which are valid until release().
  const std::byte* data = nullptr;
  Header header;
  /// Whether `data` is the sender's own memory, which the sender may take back when its call fails:
  /// see RecvRing::still_valid().
  bool zero_copy = false;
  /// Whether the payload is not at this rank yet; `data` is null then. See RecvChannel::get().
  bool remote = false;
};

class RecvChannel {
 public:
  virtual ~RecvChannel() = default;

  /// Returns the oldest message that has not been released, or none while there is none. A second
  /// call returns the same message.
  virtual std::optional<Message> peek() = 0;

  /// Brings the payload of the oldest message to `place`, or to memory of the channel where `place`
  /// has no address. Returns where the payload is, or null while it is not complete; the caller
  /// then calls again with the same place. A message that is longer than `place` is not brought:
  /// peek() shows it.
  ///
  /// A caller that knows how long the next message will be may call this before peek() finds the
  /// message. A channel that can then receives the payload at `place`, and peek() returns it there;
  /// other channels ignore the call. Gets of several channels proceed at the same time. The channel
  /// may write to `place` until the message is released or Transport::revoke() is called. Where
  /// `place` is longer than the message, the rest is meant for the messages behind it, one after
  /// the other.
  virtual const std::byte* get(const Memory& place) {
    static_cast<void>(place);
    return nullptr;
  }

  /// Releases the peeked message: its memory and its place in the window are the sender's again.
  virtual void release() = 0;

  virtual RecvRing* ring() noexcept { return nullptr; }
};

/// The result of Transport::allocate_registered(): a segment and its number.
struct Registration {
  std::uint32_t number = 0;
  Segment segment;
  std::shared_ptr<const Fd> file = nullptr;  ///< The file of the memory, where it has one.
};

struct PeerStatus {
  enum class State {
    alive,
    /// The peer has closed its communicator in good order; what it sent before can still be
    /// received.
    closed,
    failed,  ///< The peer says that it has failed; its status page says why.
    /// The peer's process or connection is gone; what it sent before may still be received.
    lost,
    /// Other bytes arrive than the peer sent, so nothing more is received from it.
    corrupt,
    /// This rank has no memory for what the peer sends, so nothing more is received from it.
    no_memory
  };
  State state = State::alive;
  /// Where the state is lost, corrupt or no_memory: what was observed ("process 4711 has ended").
  std::string why;
  /// Whether the peer's process or connection is gone, whatever state its status page showed
  /// before.
  bool gone = false;
  /// Whether nothing more is received from the peer, whatever state its status page showed before.
  bool deaf = false;
};

/// Stands in Subset::members for a rank of the new communicator that is none of the transport that
/// is split, and that another transport reaches.
inline constexpr int kElsewhere = -1;

/// A subset of a transport's ranks, which form a communicator of their own, perhaps with others.
struct Subset {
  std::vector<int>
      /// The members as ranks of the transport that is split, indexed by their new ranks.
      members;
  int rank = 0;  ///< This rank's index in `members`.
  /// The number that each member has given this subset. It is at least 1, and differs from the
  /// numbers that the member has given to all other subsets that share these connections. Empty for
  /// the communicator that made the connections.
  std::vector<std::uint32_t> numbers;
  /// The following fields mean what they mean in TransportContext.
  std::size_t data_bytes = 0;
  std::size_t max_message_bytes = 0;
  ShownPage status_page = {};

  /// Whether there are members that only another transport reaches.
  bool has_others() const noexcept {
    return std::find(members.begin(), members.end(), kElsewhere) != members.end();
  }

  /// Returns the number that identifies this subset on the connection to `peer`: the one that the
  /// lower of the connection's two ends has given. It is therefore unique on that connection,
  /// whatever other threads split at the same time; other connections may use other numbers for the
  /// same subset. 0 for the communicator that made the connections.
  std::uint32_t id_with(int peer) const {
    if (numbers.empty()) return 0;
    assert(numbers.size() == members.size() && peer != rank);
    assert(peer >= 0 && static_cast<std::size_t>(peer) < members.size());
    const auto self = static_cast<std::size_t>(rank), other = static_cast<std::size_t>(peer);
    return numbers[members[self] < members[other] ? self : other];
  }
};

/// One way to reach the other ranks of one communicator. The registry creates it, and connect() is
/// called before everything but address().
class Transport {
 public:
  virtual ~Transport() = default;

  /// Returns what peers need to connect to this rank, as bytes for the store (at most 4 KiB), or an
  /// empty string where they need nothing.
  virtual std::string address() const { return {}; }

  /// Connects this rank to its peers. `addresses` holds the address() of each rank, or is empty
  /// where no rank has one. Peers whose address is an empty string, and those of which
  /// TransportContext::elsewhere says so, are reached by another transport and stay unconnected
  /// here; no other function is called for them. Throws `unavailable` with the
  /// reason where a peer cannot be reached this way, `peer_lost` where a peer has ended, and
  /// `timeout` naming the ranks that never came.
  virtual void connect(std::span<const std::string> addresses, TimePoint deadline) = 0;

  /// Returns, after connect(), why there is no connection to a peer, or an empty string where there
  /// is one. A transport whose links have `may_fail` reports a single failed peer here instead of
  /// throwing from connect().
  virtual std::string why_unconnected(int peer) const {
    static_cast<void>(peer);
    return {};
  }

  /// Returns what the connection to `peer` can do. Constant once connected.
  virtual const LinkCapabilities& link(int peer) const = 0;

  /// Returns channel `number` to or from `peer`, which is created by the first call and stays valid
  /// until the transport is destroyed. Throws `unavailable` where there is no memory for it.
  virtual SendChannel& sender(int peer, int number) = 0;
  virtual RecvChannel& receiver(int peer, int number) = 0;

  /// Does all work that is possible without waiting: it continues handshakes, moves bytes, and
  /// notices changes of peers' states. Part of every wait.
  virtual void progress() = 0;

  /// Whether all posted messages have left this rank. Those that have not wait for room that only
  /// calls of this transport discover, and after an operation nobody may call it for a long time,
  /// so an operation ends only when this returns true.
  virtual bool all_left() { return true; }
  virtual bool leaves_at_once() const {
    return true;
  }  ///< Whether all_left() is always true, so that callers need not ask.

  /// Returns pollable descriptors, one of which is readable when progress() has work that no
  /// doorbell announces (bytes in a socket, the end of a peer); none where there is no such work.
  virtual std::vector<int> wait_fds() const { return {}; }

  /// Enclose a sleep on wait_fds(): a thread calls arm(), checks its condition a last time, sleeps,
  /// and calls disarm(). In between, one of them is readable for all that progress() would find; at
  /// other times it need not be, since a thread that is awake calls progress(). Any thread may call
  /// them; each arm() is followed by one disarm().
  virtual void arm() {}
  virtual void disarm() noexcept {}

  virtual PeerStatus status(int peer) = 0;

  /// Return this rank's status page and a peer's. A peer's is null while it has not arrived; the
  /// caller tries again after progress(). It may be a copy that is a few milliseconds old.
  virtual StatusPage& own_status_page() = 0;
  virtual const StatusPage* status_page(int peer) = 0;

  /// Returns a peer's status page as it was within the last second and a half, without requesting a
  /// newer one, or null where it is not known.
  virtual const StatusPage* recent_status_page(int peer) { return status_page(peer); }

  /// Does what progress() does, and may be called by any thread. A background thread calls it about
  /// every half second, so that peers which request the status page are answered while this rank's
  /// program computes. Returns false where peers never make such requests.
  virtual bool background_progress() { return false; }

  /// Wakes `peer` if it sleeps. Called after own_status_page() has changed in a way that the peer
  /// should notice.
  virtual void wake(int peer) = 0;

  /// Returns a transport between the members of `subset` over the same connections, or null where
  /// this transport cannot be split. join() connects it, in place of connect(). The two transports
  /// may be used and destroyed independently, each by one thread at a time; the connections end
  /// with the last transport that uses them.
  virtual std::unique_ptr<Transport> split(const Subset&) { return nullptr; }

  /// For a transport that split() has returned: the first call tells the other members that this
  /// rank has made its part. Returns the members that have not made theirs yet, as ranks of this
  /// transport. The caller calls it again after progress() until it returns none; the transport is
  /// connected from then on. It does not notice that a member will never come: its caller asks the
  /// transport that was split for the status of the missing members.
  virtual std::vector<int> join() { return {}; }

  /// Allocates zeroed memory and registers it with the peers that can map it, which then read and
  /// write it in place. Returns none where this transport has no such memory, and throws
  /// `unavailable` where there is not enough. The memory stays registered until unregister() or
  /// until the transport is destroyed.
  virtual std::optional<Registration> allocate_registered(std::size_t) { return std::nullopt; }
  /// Ends a registration. Peers are told and unmap the memory some time later; until then they can
  /// still read it. This rank's own mapping lives as long as its Segment.
  virtual void unregister(std::uint32_t) noexcept {}
  /// Registers memory with the peers of this transport that another one, which reaches other peers
  /// of the same communicator, has allocated. Throws `unavailable` where there is no memory for it.
  virtual void share_registered(const Registration&) {}
  /// Returns all memory that this rank has registered, or null where the transport never registers
  /// any.
  virtual const Segments* registered() const noexcept { return nullptr; }

  /// Lets the devices of this transport work with memory of the program: from now on, and until the
  /// last copy of the result is destroyed, they may send messages from there, and receive them
  /// there, without a copy. Returns null where the transport has no use for it. No message may be
  /// under way in the memory when the registration ends, which waits for devices; any thread may
  /// end it, also after the transport has been destroyed. Where a device refuses the memory,
  /// messages are copied.
  virtual std::shared_ptr<void> register_memory(std::byte* data, std::size_t bytes) {
    static_cast<void>(data);
    static_cast<void>(bytes);
    return nullptr;
  }

  /// Takes the program's memory back from messages to and from `peer` that are under way: once it
  /// returns, this process neither reads nor writes that memory for them. A peer that reads
  /// registered memory by itself may go on for a moment, but discards what it has read once this
  /// rank's status page says that this rank has failed. The status page must therefore say so
  /// before this call.
  virtual void revoke(int peer) noexcept { static_cast<void>(peer); }

  /// Whether collectives should send from host memory without a copy where a channel can, because
  /// that costs less than the copy.
  virtual bool prefers_zero_copy() const noexcept { return false; }

  /// Returns how many bytes of memory the transport holds for messages and status pages, both
  /// shared with peers and private.
  virtual std::size_t memory_bytes() const { return 0; }

  /// Tells peers that this rank has closed, which they see as State::closed. Afterwards the
  /// transport sends no message and touches no memory of the program. May be called more than once.
  virtual void close() noexcept = 0;
};

}  // namespace tutti
