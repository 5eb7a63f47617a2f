// Declares the connection to one peer, over one path or several. It sends and receives the frames
// of all communicators that share it.
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
#include "transport/queue_pair/control.h"
#include "transport/queue_pair/device.h"
#include "transport/queue_pair/frame.h"
#include "transport/queue_pair/path.h"
#include "transport/queue_pair/pending_frames.h"
#include "transport/queue_pair/registrations.h"
#include "transport/queue_pair/sequence.h"

namespace tutti::qp {

class Endpoint;

/// Thread-safe, because communicators that share it are used by different threads. No function
/// blocks, except revoke(), withdraw() and remove(), which wait for devices, a few seconds at most.
///
/// A thread that waits for a message handles the frames of all communicators, and hands each
/// message to its channel, which has memory for it (see kWindow). Frames for which the peer has no
/// slot, or this rank none to send from, are queued, and are sent in order.
///
/// Frames have sequence numbers, and take any path that has room; the receiver handles them in
/// order. A path that fails is taken out (connection_paths.cpp): frames that may not have arrived
/// are sent again over another one, and those that have arrived twice are dropped.
class Connection {
 public:
  /// `at_once` says that the first path is made now, and not once it is needed.
  Connection(Endpoint& endpoint, Device& device, const Clock& clock, bool at_once = true);
  /// Destroys the queue pairs first, so that no device works with its memory any more.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const Endpoint& endpoint() const noexcept { return endpoint_; }
  /// Returns the path that is made first.
  Path& first_path() noexcept { return *paths_.front(); }
  QueuePair& queue_pair() noexcept { return first_path().pair(); }
  /// Asks to receive in all slots of the first of so many paths. Called once, before the peer sends
  /// anything. Throws `unavailable`.
  void open(std::uint32_t paths = 1);
  bool has_path() const noexcept { return !paths_.empty(); }
  /// Does without the first path: frames go over the control connection until one of the two ranks
  /// has a message for the other, and so many paths are made. Called in place of open().
  void postpone(std::uint32_t paths) noexcept;
  /// Takes the control connection to the peer, over which further paths are made, and others in the
  /// place of those that fail: as many as open() was told. `leads` says that this end, and not the
  /// peer, proposes them. Called once the first path works.
  void add_control(Control control, int rank, bool leads, std::uint32_t peer_ports);
  int control_fd() const noexcept { return control_->fd(); }
  /// Reads what the peer has said over it.
  void read_control();

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
  /// Handles an event: the queue pairs are not armed any more.
  void take_event() noexcept;
  bool has_unsent() const noexcept { return unsent_count_.load(std::memory_order_relaxed) > 0; }
  bool has_unsent_of(const Group& group) const;
  /// Returns how many frames have not reached the peer's slots yet; 0 where they never will.
  std::size_t unfinished();
  /// Returns whether a device is sending: it ends by itself, since it gives up where it is in vain.
  bool awaits_device() const;

  /// Sends a frame that says nothing. Whether one arrives shows whether the path between the two
  /// devices works.
  void probe();
  /// Returns whether anything has arrived.
  bool has_heard() const {
    const std::lock_guard lock(mutex_);
    return paths_.front()->heard;
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
  /// Returns the bytes of all slots with which devices work.
  std::size_t slot_bytes() const;
  /// Returns the ports of the paths that are used, as "mlx5_0/1, mlx5_1/1".
  std::string paths_used() const {
    const std::lock_guard lock(mutex_);
    return names_of_paths();
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
  static constexpr const char* kNoMemory = "out of memory";  // A string of it takes none.
  static constexpr const char* kNonsense =
      "it sent what makes no sense: does it run another version, is it damaged?";

  using Lock = std::unique_lock<sync::Mutex>;

  // All functions below are called with mutex_ held.
  [[maybe_unused]] bool is_sound() const;
  bool ended() const noexcept { return how_ended() != End::none; }
  std::size_t take_completions();
  std::size_t take_completions(Path& path);
  void handle(Path& path, const Completion& completion);
  void sent(Path& path, const Completion& completion);
  void received(Path& path, std::uint32_t slot, std::size_t bytes);
  void hold(Path& path, std::uint32_t slot, std::size_t bytes, std::uint16_t sequence);
  void handle_held();
  void move_held();
  void take(const std::byte* data, std::size_t bytes);
  void make_ready(Path& path, std::uint32_t slot, bool room = false);
  bool has_queue() const noexcept { return !unsent_.empty() || !doubts_.empty(); }
  bool arm_paths();
  void begin(const Frame& frame, std::span<const std::byte> payload);
  bool take_credits(const Frame& frame, Group* group);
  void begin_message(const Frame& frame, Group* group, std::span<const std::byte> payload);
  void add_part(std::span<const std::byte> payload);
  Receiver* announce(const Frame& frame, Group& group);
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
  void post_reads(Path& path);
  void has_read(Path& path, std::uint32_t id);
  void give_up(const Reading& reading);
  void give_up_reads(Path& path);
  Path* path_to_read(std::size_t bytes) noexcept;
  static void put_back(const Reading& reading) noexcept;
  void decline(Receiver& channel, std::uint32_t message, const Memory& place);
  void reply(std::uint32_t group, int channel, std::uint16_t number, FrameKind kind);
  void withdraw(Sender& channel, Sender::Offered& offered);
  void drop_offers() noexcept;
  void finish(Sender& channel, Sender::Offered& offered) noexcept;
  template <typename What>
  void each_offer(What&& what) {
    for (const auto& [id, group] : groups_)
      for (const auto& [number, channel] : group->channels)
        for (Sender::Offered& offered : channel->sender.offers)
          if (offered.under_way) what(channel->sender, offered);
  }
  void put_back_reads(const std::function<bool(const Reading&)>& which) noexcept;
  static Reading forget_read(Path& path, std::uint32_t id) noexcept;
  void take_cancelled_reads() noexcept;
  /// Says whose frames are served during a wait.
  enum class Serve { this_peer, all_peers };
  void pause(Lock& lock, Serve serve) noexcept;
  void await_reads(Lock& lock, Serve serve,
                   const std::function<bool(const Reading&)>& which) noexcept;
  void await_replies(
      Lock& lock, Serve serve,
      const std::function<bool(const Sender&, const Sender::Offered&)>& which) noexcept;
  void give_room_back(Path& path);
  void send_room(Path& path);
  void send(Unsent unsent);
  void send_credit(Receiver& channel);
  void send_status_page(const Group& group);
  void send_queue();
  bool send_again();
  bool send_part(Path& path, Unsent& unsent);
  void drop_queue() noexcept;
  void set_unsent() noexcept;
  std::size_t in_process() const noexcept;
  void reread();
  // These functions are those of the paths (connection_paths.cpp).
  Path* path_with_room() noexcept;
  Path* find_path(std::uint32_t number) noexcept;
  void fail(Path& path, std::string why);
  void end_with_device(std::string_view why);
  void doubt(Path& path, std::uint32_t slot);
  void tend_paths(TimePoint now);
  bool tend(Path& path, TimePoint now);
  void choose_paths();
  void propose_path(TimePoint now);
  void need_paths();
  Path& make_path(std::uint32_t number, std::uint32_t port);
  void say(Note::Step step, const Path& path, std::string_view text);
  void log_failure(const Path& path) const;
  void log_vain_try(const std::string& port, std::string_view why) const;
  Path& add_control_path();
  // Returns whether frames may come over the control connection at any moment. Elsewhere the
  // endpoint tells when something has come, which spares a system call for each peer.
  bool polls_control() const noexcept { return by_control_live_ && needs_paths_; }
  void take_notes();
  void watch_control();
  void take_note(const Control::Said& said);
  void take_address(const Control::Said& said);
  void take_loss(const Control::Said& said);
  void connect(Path& path, const std::string& address);
  void try_out(Path& path);
  void go_live(Path& path);
  std::string names_of_paths() const;
  bool has_room_for(Sender& channel, std::size_t bytes);
  static Unsent unsent_of(Sender& channel, FrameKind kind, const Header& header);
  static void has_left(const Unsent& unsent) noexcept;
  void notify_all_groups() const;
  void end(std::string why, End how = End::lost);

  Endpoint& endpoint_;
  const std::shared_ptr<Registrations> registrations_;
  const Clock& clock_;
  const char* const name_;  // of the devices, in messages
  mutable sync::Mutex mutex_;
  // The first path, others in the order in which they were made, and that over the control
  // connection where it has been needed. Those that have failed go when their devices have ended.
  std::vector<std::unique_ptr<Path>> paths_;
  std::size_t turn_ = 0;                    // the path that the next frame takes, if it can
  std::map<std::uint32_t, Group*> groups_;  // by id

  Sequence sequence_;                        // of what is sent
  std::deque<InDoubt> doubts_;               // they are sent before all else
  std::uint16_t expected_ = 0;               // the number of the frame that is handled next
  std::array<EarlyFrame, kMostAhead> held_;  // by number
  std::uint32_t held_count_ = 0;
  // Frames before this one may be sent again: others do not wait for them in slots, which the peer
  // may need for them.
  std::optional<std::uint16_t> again_until_;
  Incoming incoming_;
  std::deque<Unsent> unsent_;  // the oldest first
  sync::Atomic<std::size_t> unsent_count_{0};

  std::optional<Control> control_;
  ControlPair* by_control_ = nullptr;  // of the path over the control connection
  bool by_control_live_ = false;       // whether that is used
  bool changes_paths_ = true;          // whether the device leaves that to this connection
  int rank_ = -1;                      // of the peer
  bool leads_ = false;                 // whether this end proposes paths
  bool watches_out_ = false;           // whether the endpoint watches for room in the socket
  bool needs_paths_ = true;            // whether either rank has had a message for the other
  std::uint32_t wanted_paths_ = 1, peer_ports_ = 1;
  std::uint32_t last_path_ = Path::kFirst;  // the number of the last path that was made
  std::uint32_t next_ports_ = 1;            // the pair of ports that is tried next
  std::uint32_t vain_tries_ = 0;            // since a path was made
  TimePoint propose_at_{};

  sync::Atomic<End> end_{End::none};
  std::string why_ended_;
  bool broken_ = false;  // whether no path does any more work
  Traffic traffic_;
  std::optional<TimePoint> quiet_since_;  // where the peer has ended: when something came last
  std::string why_peer_ended_;
};

}  // namespace tutti::qp
