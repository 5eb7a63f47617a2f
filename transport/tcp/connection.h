// The connection to one peer after the handshake. It sends and receives the frames of all
// communicators that share it.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/sync.h"
#include "net/stream.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/group.h"

namespace tutti::tcp {

class Endpoint;

/// Thread-safe, because communicators that share it are used by different threads. No function
/// blocks.
///
/// A thread that waits for a message reads for all communicators, and hands each message to its
/// channel, which has room for it (see kWindow). What the socket does not accept is queued, and is
/// sent before anything newer.
class Connection {
 public:
  Connection(Endpoint& endpoint, const Clock& clock, net::Stream stream, bool checksum);

  int socket() const noexcept { return stream_.fd(); }
  std::uint32_t window() const noexcept { return window_; }

  /// Adds a group, whose id is new. It takes part until it is removed.
  void add(Group& group);
  /// Removes a group. What remains to be written of it will still be sent; the group and its
  /// channels may be destroyed.
  void remove(const Group& group);

  TcpSendChannel& sender(Group& group, int number) {
    const std::lock_guard lock(mutex_);
    return group.channel(number).sender;
  }
  TcpRecvChannel& receiver(Group& group, int number) {
    const std::lock_guard lock(mutex_);
    return group.channel(number).receiver;
  }

  /// Reads what has arrived, unless another thread is doing so, and writes what is queued for any
  /// peer. Called by a thread that waits for this peer.
  void poll();
  /// Adds the connection to the endpoint's epoll. poll() removes it again where no thread sleeps,
  /// because each packet that arrives would otherwise wake the epoll and its watchers (0.3 us of
  /// the 3 us that a small message takes).
  void arm();
  bool is_armed() const noexcept { return armed_.load(std::memory_order_relaxed); }

  /// Continues to read a message of `channel` that is remote. It is read to `place`, unless another
  /// thread has had to read it meanwhile, and to memory of the channel where `place` has no
  /// address.
  void get(TcpRecvChannel& channel, const Memory& place);
  /// Says where the next message of `channel`, which has not been announced, may be read to.
  void expect(TcpRecvChannel& channel, const Memory& place);
  /// Moves all messages of the group that are under way out of the program's memory: once it
  /// returns, none is read from there or written there.
  void revoke(Group& group);

  /// Reads and writes all that can be read and written.
  void pump();
  /// Writes what it can of the queue; returns true where nothing is left, or where the peer can no
  /// longer receive it.
  bool flush();
  bool has_unsent() const noexcept { return has_unsent_.load(std::memory_order_relaxed); }
  /// Whether messages of `group` have not left yet. With TLS, bytes that are encrypted already
  /// count for every group, since they do not tell to which group they belong.
  bool has_unsent_of(const Group& group) const;

  /// Computes the checksums of a frame and its payload where they are enabled.
  void seal(Frame& frame, const std::byte* payload) const noexcept {
    if (!checksum_) return;
    frame.header.crc = crc32c(payload, frame.header.length);
    frame.check = check_of(frame);
  }
  /// Sends a frame without payload.
  void put(Frame frame);
  /// Sends a message that has its frame before it, and tells `channel` when it has been written.
  void put_message(std::span<const std::byte> bytes, TcpSendChannel& channel);
  /// Does the same for a message that stays in the program's memory until it has been written.
  void put_zero_copy(const Frame& frame, const std::byte* data, TcpSendChannel& channel);
  void put_status_page(const Group& group);
  /// Returns the peer's status page in the group. Where it is too old, requests a new one and
  /// returns null.
  const StatusPage* status_page(Group& group);
  /// Returns the page as it was received last, or null where that was too long ago.
  const StatusPage* recent_status_page(Group& group);
  /// Whether the page has ever been received.
  bool has_status_page(const Group& group) {
    const std::lock_guard lock(mutex_);
    return group.peer_page.received();
  }

  std::size_t memory_bytes(const Group& group) const;

  /// Returns why the connection has ended, or an empty string while it has not.
  std::string why_ended() const {
    const std::lock_guard lock(mutex_);
    return why_ended_;
  }
  /// How it has ended. Only where it is lost can nothing be sent any more.
  enum class End { none, lost, corrupt, no_memory };
  bool ended() const noexcept { return how_ended() != End::none; }
  End how_ended() const noexcept { return end_.load(std::memory_order_acquire); }
  /// Ends the connection where the peer's machine has acknowledged nothing for long. A machine that
  /// has vanished sends nothing, not even the end of the connection.
  void look_whether_alive();
  /// Handles that the peer's process has ended although the connection has not: ends the connection
  /// once what the process sent before has stopped arriving.
  void end_with_process();
  /// Tells the peer that nothing more is sent. It is called last before the connection is
  /// destroyed.
  void say_goodbye() noexcept;

 private:
  /// An entry of the queue: a frame and its payload, or both in `data` where `channel` has staged
  /// them.
  struct Unsent {
    Frame frame;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    TcpSendChannel* channel = nullptr;  // told when the message has been written
    bool framed = true;                 // whether `frame` is sent before `data`
    std::unique_ptr<std::byte[]> own;   // memory of `data` where this entry owns it

    std::size_t size() const { return (framed ? sizeof frame : 0) + bytes; }
    bool is_of(const Group& group) const;
    bool is_message_of(const Group& group) const { return channel != nullptr && is_of(group); }
    void keep();  // Copies `data` to memory of the entry's own.
  };
  /// The payload that is being read.
  struct Payload {
    Frame frame;
    std::byte* begin = nullptr;  // null if it is discarded or has no place yet
    std::size_t left = 0;
    Group* group = nullptr;
    TcpRecvChannel* channel = nullptr;  // the channel, where it is a message
    bool waits = false;                 // whether it waits for get() to say where it goes
    int passed = 0;                     // number of reads for something else meanwhile
    bool to_program = false;            // whether it goes to the program's memory

    std::size_t there() const { return frame.header.length - left; }
    std::byte* next() const { return begin == nullptr ? nullptr : begin + there(); }
  };

  /// until_empty reads until the socket has nothing more, so that an end behind the last bytes is
  /// seen: the epoll reports the two by one event.
  enum class Read { what_is_there, until_empty };
  static constexpr const char* kNoMemory = "out of memory";  // a string of it takes none

  static iovec piece(const void* data, std::size_t bytes) noexcept {
    return {const_cast<void*>(data), bytes};
  }

  // All functions below are called with mutex_ held.
  [[maybe_unused]] bool is_sound() const;
  void read(Read how);
  bool may_leave_bytes() const;
  void listen_for_silence(TimePoint now) noexcept;
  void parse();
  void parse_inbox();
  void take_from_inbox();
  void begin(const Frame& frame);
  void begin_message(const Frame& frame, Group& group);
  void place(std::byte* to);
  void finish_payload();
  Group* find(std::uint32_t id);
  void notify_all_groups() const;
  void send(Unsent unsent, bool passing = false);
  void cut_short(const Unsent& unsent);
  std::size_t write_now(std::span<const iovec> pieces);
  bool all_written() const { return head_ == unsent_.size() && stream_.unsent_bytes() == 0; }
  void write_queue();
  void drop_written(std::size_t bytes);
  void send_status_page(const Group& group);
  void set_unsent();
  void end(std::string why, End how = End::lost);

  Endpoint& endpoint_;
  const Clock& clock_;
  net::Stream stream_;
  const std::uint32_t window_;  // the result of window_for()
  const bool checksum_;
  mutable sync::Mutex mutex_;
  std::map<std::uint32_t, Group*> groups_;  // by id
  Group* last_ = nullptr;                   // the group of the frame that arrived last

  std::vector<std::byte> inbox_;  // Frames and small payloads are read into it.
  std::size_t inbox_begin_ = 0, inbox_end_ = 0;
  Payload payload_;
  StatusPageBytes status_page_in_{};

  std::vector<Unsent> unsent_;  // the queue, from head_ on, the oldest first
  std::size_t head_ = 0;
  std::size_t head_written_ = 0;  // bytes of its first entry that are written
  sync::Atomic<bool> has_unsent_{false};
  // The kernel's error, after which nothing is written; empty if there was none.
  std::string why_unwritable_;
  sync::Atomic<bool> armed_{true};
  sync::Atomic<End> end_{End::none};
  std::string why_ended_;
  TimePoint looked_at_{};
  std::uint64_t received_ = 0;  // bytes
  // What listen_for_silence() found last: how many bytes had been received, and since when.
  std::optional<std::uint64_t> received_then_;
  TimePoint quiet_since_{};
};

}  // namespace tutti::tcp
