// Declares the connection to one peer, which is a queue pair with its slots. It sends and receives
// the frames of all communicators that share it.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/sync.h"
#include "transport/page_bytes.h"
#include "transport/queue_pair/channels.h"
#include "transport/queue_pair/device.h"
#include "transport/queue_pair/frame.h"
#include "transport/queue_pair/registrations.h"
#include "transport/queue_pair/slots.h"

namespace tutti::qp {

class Endpoint;

/// Thread-safe, because communicators that share it are used by different threads. No function
/// blocks, except revoke(), withdraw() and remove(), which wait for devices, a few seconds at most.
///
/// A thread that waits for a message handles the frames of all communicators, and hands each
/// message to its channel, which has memory for it (see kWindow). Frames for which the peer has no
/// slot, or this rank none to send from, are queued, and are sent in order.
class Connection {
 public:
  Connection(Endpoint& endpoint, Device& device, const Clock& clock);
  /// Destroys the queue pair first, so that the device works with its memory no more.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  QueuePair& queue_pair() noexcept { return *queue_pair_; }
  /// Asks to receive in all slots. Called once, before the peer sends anything.
  void open();

  /// Adds a group, whose id is new. It takes part until it is removed.
  void add(Group& group);
  /// Removes a group. What remains to be sent of it will still be sent; the group and its channels
  /// may be destroyed.
  void remove(const Group& group);
  Group::Channel& channel(Group& group, int number) {
    const std::lock_guard lock(mutex_);
    return group.channel(number);
  }

  // These functions are those of the channels.
  std::optional<Message> peek(Receiver& channel);
  const std::byte* get(Receiver& channel, const Memory& place);
  void release(Receiver& channel);
  std::optional<Span> acquire(Sender& channel, std::size_t bytes);
  bool acquire_in_place(Sender& channel, const Memory& message);
  bool has_copied(const Sender& channel) const noexcept;
  void post(Sender& channel, const Header& header);

  /// Moves all messages of the group that are under way out of the program's memory: once it
  /// returns, none is read from there or written there. The status page says before that the
  /// communicator has failed or closed: messages that are only offered will not arrive.
  void revoke(Group& group) noexcept;
  /// Does the same for registered memory of a number, which is to end, although no call fails:
  /// messages that are offered will be sent from copies.
  void withdraw(std::uint32_t memory, const std::byte* data, std::size_t bytes) noexcept;

  /// Handles what has arrived, and sends what can be sent.
  void pump();
  /// Makes the endpoint's descriptor readable when something more happens.
  void arm();
  /// Handles an event: the queue pair is not armed any more.
  void take_event() noexcept;
  bool has_unsent() const noexcept { return unsent_count_.load(std::memory_order_relaxed) > 0; }
  bool has_unsent_of(const Group& group) const;
  /// Returns how many frames have not reached the peer's slots yet; 0 where they never will.
  std::size_t unfinished();

  /// Sends a frame that says nothing. Whether one arrives shows whether the path between the two
  /// devices works.
  void probe();
  /// Returns whether anything has arrived.
  bool has_heard() const {
    const std::lock_guard lock(mutex_);
    return heard_;
  }

  void put_status_page(const Group& group);
  /// Returns the peer's status page in the group. Where it is too old, requests a new one and
  /// returns null.
  const StatusPage* status_page(Group& group);
  /// Returns the page as it was received last, or null where that was too long ago.
  const StatusPage* recent_status_page(Group& group);
  /// Returns whether the page has ever been received.
  bool has_status_page(const Group& group) const {
    const std::lock_guard lock(mutex_);
    return group.peer_page.received();
  }
  /// Counts what has been sent and read since the beginning.
  struct Traffic {
    std::uint64_t slot_bytes = 0;  ///< Payload of messages that was copied into slots.
    std::uint64_t offers = 0, declined = 0, read_bytes = 0;
  };
  Traffic traffic() const {
    const std::lock_guard lock(mutex_);
    return traffic_;
  }
  std::size_t memory_bytes(const Group& group) const {
    const std::lock_guard lock(mutex_);
    return group.memory_bytes();
  }

  enum class End { none, lost, no_memory };
  End how_ended() const noexcept { return end_.load(std::memory_order_acquire); }
  std::string why_ended() const {
    const std::lock_guard lock(mutex_);
    return why_ended_;
  }
  /// Handles that the peer's process or its control connection has ended, as `why` says. What the
  /// peer sent before may be about to arrive, so the connection is lost a little later.
  void end_with_peer(const char* why);

 private:
  /// A frame that waits to be sent, with its payload.
  struct Unsent {
    Frame frame;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::size_t sent = 0;              // bytes of the payload that have been sent in earlier parts
    Sender* channel = nullptr;         // where it is a message; told when all of it is in slots
    std::byte* staged = nullptr;       // where it has a block of the channel
    bool in_program = false;           // whether it lies in the program's memory
    bool begun = false;                // whether its first part has been sent
    std::unique_ptr<std::byte[]> own;  // memory of `data` where this entry owns it

    void keep();  // Copies `data` to memory of the entry's own.
  };
  /// The message whose parts are arriving.
  struct Incoming {
    std::byte* begin = nullptr;  // null if it is discarded
    std::size_t bytes = 0, there = 0;
    Receiver* channel = nullptr;
    Receiver::Arrival* arrival = nullptr;  // of that channel

    bool none() const noexcept { return there == bytes; }
  };

  /// A message that the device reads from the peer's memory.
  struct Reading {
    Receiver* channel = nullptr;
    std::uint32_t message = 0;  // its number in the channel
    Registrations::Use use;     // of where it goes

    Receiver::Arrival& arrival() const noexcept { return channel->at(message); }
  };
  using Lock = std::unique_lock<sync::Mutex>;

  // All functions below are called with mutex_ held.
  [[maybe_unused]] bool is_sound() const;
  bool ended() const noexcept { return how_ended() != End::none; }
  std::size_t take_completions();
  void handle(const Completion& completion);
  void listen_for_silence(TimePoint now);
  void received(std::uint32_t slot, std::size_t bytes);
  void begin(const Frame& frame, std::span<const std::byte> payload);
  bool take_credits(const Frame& frame, Group* group);
  void begin_message(const Frame& frame, Group* group, std::span<const std::byte> payload);
  void add_part(std::span<const std::byte> payload);
  Receiver::Arrival* announce(const Frame& frame, Group& group);
  void move_out(Receiver& channel);
  void expect_behind(Receiver& channel, Memory rest);
  static Memory take_place(Receiver& channel, const Receiver::Arrival& arrival);
  static std::byte* stage(Receiver& channel, Receiver::Arrival& arrival);
  static bool goes_to(const Receiver::Arrival& arrival, const Memory& place) noexcept {
    return place.address != nullptr && arrival.header.length <= place.bytes;
  }
  void take_status_page(Group* group, std::span<const std::byte> payload);
  Group* find(std::uint32_t id);
  // These functions are those of messages that are read (connection_offers.cpp).
  bool offer(Sender& channel, const Header& header, const Memory& message);
  void begin_offer(const Frame& frame, Group* group, std::span<const std::byte> payload);
  void begin_answer(const Frame& frame, Group* group, std::span<const std::byte> payload);
  void take_reply(const Frame& frame, Group* group);
  void take_withdrawal(const Frame& frame, Group* group);
  void begin_read(Receiver& channel, std::uint32_t message, const Memory& place);
  void post_reads();
  void has_read(std::uint32_t id);
  void decline(Receiver& channel, std::uint32_t message, const Memory& place);
  void reply(std::uint32_t group, int channel, std::uint16_t number, FrameKind kind);
  void withdraw(Sender& channel, Sender::Offered& offered);
  void drop_offers() noexcept;
  static void finish(Sender& channel, Sender::Offered& offered) noexcept;
  template <typename What>
  void each_offer(What&& what) {
    for (const auto& [id, group] : groups_)
      for (const auto& [number, channel] : group->channels)
        for (Sender::Offered& offered : channel->sender.offers)
          if (offered.under_way) what(channel->sender, offered);
  }
  void put_back_reads(const std::function<bool(const Reading&)>& which) noexcept;
  void forget_read(std::uint32_t id) noexcept;
  void take_cancelled_reads() noexcept;
  /// Says whose frames are served during a wait.
  enum class Serve { this_peer, all_peers };
  void pause(Lock& lock, Serve serve) noexcept;
  void await_reads(Lock& lock, Serve serve,
                   const std::function<bool(const Reading&)>& which) noexcept;
  void await_replies(
      Lock& lock, Serve serve,
      const std::function<bool(const Sender&, const Sender::Offered&)>& which) noexcept;
  void give_room_back();
  void send_room();
  void send(Unsent unsent);
  void send_credit(Receiver& channel);
  void send_status_page(const Group& group);
  void send_queue();
  void await_acknowledgements() noexcept;
  bool send_part(Unsent& unsent);
  void drop_queue() noexcept;
  void set_unsent() noexcept;
  std::size_t in_process() const noexcept;
  void reread();
  bool has_room_for(Sender& channel, std::size_t bytes);
  static Unsent unsent_of(Sender& channel, FrameKind kind, const Header& header);
  static void has_left(const Unsent& unsent) noexcept;
  void notify_all_groups() const;
  void end(std::string why, End how = End::lost);

  Endpoint& endpoint_;
  const std::shared_ptr<Registrations> registrations_;
  const Clock& clock_;
  const char* const name_;                 // of the device, in messages
  Slots slots_;                            // destroyed after the queue pair that uses them
  std::unique_ptr<QueuePair> queue_pair_;  // constant until the end
  std::unique_ptr<Region> region_;         // the slots
  mutable sync::Mutex mutex_;
  std::map<std::uint32_t, Group*> groups_;  // by id
  bool armed_ = false;

  std::vector<std::uint32_t> free_slots_;  // those to send from
  std::uint32_t room_ = kReceiveSlots;     // frames for which the peer has slots
  std::uint32_t unreturned_room_ = 0;      // handled frames of which the peer has not been told
  Incoming incoming_;
  // Messages to be read, and those that the device reads, by the number of the request.
  std::deque<Reading> to_read_;
  std::array<std::optional<Reading>, kMostReads> reading_;
  std::uint32_t reads_ = 0;    // how many of them there are
  std::deque<Unsent> unsent_;  // the oldest first
  sync::Atomic<std::size_t> unsent_count_{0};

  sync::Atomic<End> end_{End::none};
  std::string why_ended_;
  bool broken_ = false;  // whether the queue pair does no more work
  bool heard_ = false;   // whether anything has ever arrived
  Traffic traffic_;
  std::uint64_t acknowledged_ = 0;  // sends that the peer's device has acknowledged
  // These hold what listen_for_silence() found last: that number, and since when nothing has
  // changed.
  std::optional<std::uint64_t> acknowledged_then_;
  TimePoint unchanged_since_{};
  std::optional<TimePoint> quiet_since_;  // where the peer has ended: when something came last
  std::string why_peer_ended_;
};

}  // namespace tutti::qp
