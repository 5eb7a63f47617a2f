// One peer's connection after the handshake: frames of all communicators that share it, in and out.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "net/stream.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/group.h"

namespace tutti::tcp {

class Endpoint;

/// Thread-safe: communicators that share it are used by different threads. Nothing waits.
///
/// Whoever waits for a message reads for all: what has come is handed to the channels whose it is,
/// which have room for it (see kWindow). What the socket does not take is queued, and goes out
/// before anything newer.
class Connection {
 public:
  Connection(Endpoint& endpoint, const Clock& clock, net::Stream stream, bool checksum);

  int socket() const noexcept { return stream_.fd(); }
  std::uint32_t window() const noexcept { return window_; }

  /// Takes part from now on, until it is removed. The group's id is new.
  void add(Group& group);
  /// What is still to be written of it goes on its way; the group and its channels may go.
  void remove(const Group& group);

  TcpSendChannel& sender(Group& group, int number) {
    const std::lock_guard lock(mutex_);
    return group.channel(number).sender;
  }
  TcpRecvChannel& receiver(Group& group, int number) {
    const std::lock_guard lock(mutex_);
    return group.channel(number).receiver;
  }

  /// For whoever waits for this peer: takes in what has come, unless another thread does so
  /// already; and what waits to go out to any peer goes on.
  void poll();
  /// Goes into the endpoint's epoll. It leaves it when it is polled and nobody sleeps: each packet
  /// that comes would wake it, and what watches it (0.3 us of the 3 that a small message takes).
  void arm();
  bool is_armed() const noexcept { return armed_.load(std::memory_order_relaxed); }

  /// For a message of `channel` that is away: reads on, to `to` if nobody else has had to read on
  /// meanwhile; null: to memory of the channel's.
  void fetch(TcpRecvChannel& channel, std::byte* to);
  /// Nothing of the group lies in memory of the program any more, nor is going to come there.
  void let_go(const Group& group);

  /// All that there is to be read and written.
  void pump();
  /// Writes what it can of what is queued; true: nothing is left, or nobody is there to take it.
  bool flush();
  bool has_unsent() const noexcept { return has_unsent_.load(std::memory_order_relaxed); }
  /// Whether messages of `group` have not left yet. With TLS, bytes that are encrypted already
  /// count for every group, since they do not tell whose they are.
  bool has_unsent_of(const Group& group) const;

  /// What a frame and its payload say of themselves where checksums are asked for.
  void seal(Frame& frame, const std::byte* payload) const noexcept {
    if (!checksum_) return;
    frame.header.crc = crc32c(payload, frame.header.length);
    frame.check = check_of(frame);
  }
  /// A frame without payload.
  void put(Frame frame);
  /// A message with its frame before it, of which `channel` is told when it has gone.
  void put_message(std::span<const std::byte> bytes, TcpSendChannel& channel);
  /// The same, of a message that lies in the program's memory until it has gone.
  void put_lent(const Frame& frame, const std::byte* data, TcpSendChannel& channel);
  void put_status_page(const Group& group);
  /// The peer's status page in the group; null: not fresh enough, and asked for.
  const StatusPage* status_page(Group& group);
  /// As it last came; null: too long ago.
  const StatusPage* recent_status_page(Group& group);
  /// Whether it has ever come.
  bool has_status_page(const Group& group) {
    const std::lock_guard lock(mutex_);
    return group.heard_at.has_value();
  }

  std::size_t memory_bytes(const Group& group) const;

  /// Why it has ended; empty: it has not.
  std::string why_ended() const {
    const std::lock_guard lock(mutex_);
    return why_ended_;
  }
  bool ended() const noexcept { return end_.load(std::memory_order_acquire) != End::none; }
  /// Once it has ended: because of bytes that are not those that were sent.
  bool corrupt() const noexcept { return end_.load(std::memory_order_acquire) == End::corrupt; }
  /// Of a machine that has vanished nothing comes, no end either: ends the connection where the
  /// peer's has not acknowledged anything for long.
  void look_whether_alive();
  /// Its process has ended, although the connection has not: that ends, too, once nothing of what
  /// it sent before comes any more.
  void end_with_process();
  /// The last thing before it goes: nothing more is sent.
  void say_goodbye() noexcept;

 private:
  /// A frame and its payload; or both in `data`, where `channel` has staged them.
  struct Unsent {
    Frame frame;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    TcpSendChannel* channel = nullptr;  // to be told
    bool framed = true;                 // `frame` goes before `data`
    std::unique_ptr<std::byte[]> own;   // `data`'s memory, where nobody else keeps it

    std::size_t size() const { return (framed ? sizeof frame : 0) + bytes; }
    bool is_of(const Group& group) const;
    bool is_message_of(const Group& group) const { return channel != nullptr && is_of(group); }
    void keep();  // `data` in memory of its own
  };
  /// The payload that is being read.
  struct Payload {
    Frame frame;
    std::byte* begin = nullptr;  // null: nobody wants it, or nobody has said where it goes
    std::size_t left = 0;
    Group* group = nullptr;
    TcpRecvChannel* channel = nullptr;  // of a message
    bool waits = false;                 // for somebody to say where it goes
    int passed = 0;                     // by how many who came for something else
    bool lent = false;                  // to memory of the program

    std::size_t there() const { return frame.header.length - left; }
    std::byte* next() const { return begin == nullptr ? nullptr : begin + there(); }
  };

  /// until_empty: asks once more than there is to read, so that an end behind it is seen. An event
  /// of the epoll comes but once for both.
  enum class Read { what_is_there, until_empty };
  enum class End { none, lost, corrupt };

  // All of these under mutex_.
  void read(Read how);
  bool may_leave_bytes() const;
  void parse();
  void take_from_inbox();
  void begin(const Frame& frame);
  void begin_message(const Frame& frame, Group& group);
  void place(std::byte* to);
  void finish_payload();
  Group* find(std::uint32_t id);
  static void notify(const Group& group);
  void notify_all_groups() const;
  void send(Unsent unsent, bool passing = false);
  std::size_t write_now(std::span<const iovec> pieces);
  bool all_written() const { return head_ == unsent_.size() && stream_.unsent_bytes() == 0; }
  void write_queue();
  void drop_written(std::size_t bytes);
  void send_status_page(const Group& group);
  bool heard_within(const Group& group, Nanoseconds age) const;
  void set_unsent();
  void end(std::string why, End how = End::lost);

  Endpoint& endpoint_;
  const Clock& clock_;
  net::Stream stream_;
  const std::uint32_t window_;  // see window_for()
  const bool checksum_;
  mutable std::mutex mutex_;
  std::map<std::uint32_t, Group*> groups_;  // by id
  Group* last_ = nullptr;                   // of groups_: whose frame came last

  std::vector<std::byte> inbox_;  // frames and small payloads come in here
  std::size_t inbox_begin_ = 0, inbox_end_ = 0;
  Payload payload_;
  StatusPageBytes status_page_in_{};

  std::vector<Unsent> unsent_;  // from head_ on, the oldest first
  std::size_t head_ = 0;
  std::size_t head_written_ = 0;  // bytes of the first
  std::atomic<bool> has_unsent_{false};
  std::string why_unwritable_;  // what the kernel said; nothing is written from then on
  std::atomic<bool> armed_{true};
  std::atomic<End> end_{End::none};
  std::string why_ended_;
  TimePoint looked_at_{};
};

}  // namespace tutti::tcp
