// Declares one way to a peer: a queue pair with its slots, and the credits for those of the peer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "transport/queue_pair/channels.h"
#include "transport/queue_pair/device.h"
#include "transport/queue_pair/frame.h"
#include "transport/queue_pair/registrations.h"
#include "transport/queue_pair/slots.h"

namespace tutti::qp {

/// A message that the device reads from the peer's memory.
struct Reading {
  Receiver* channel = nullptr;
  std::uint32_t message = 0;  ///< Its number in the channel.
  Registrations::Use use;     ///< Of where it goes.

  Receiver::Arrival& arrival() const noexcept { return channel->at(message); }
};

/// Carries frames in both directions. The connection to which it belongs numbers them, and its lock
/// guards the path.
class Path {
 public:
  /// The numbers of the path over the control connection, and of the one that ranks make when they
  /// connect. A path that is made later has the next number, which both ends know it by.
  static constexpr std::uint32_t kControl = 0, kFirst = 1;
  enum class State : std::uint8_t {
    introduced,  ///< Its two ends are being connected, and it is tried.
    idle,        ///< It works, but another one is used: the path over the control connection.
    live,        ///< It carries frames.
    failed,      ///< It carries none, and what its device still has to say is waited for.
  };

  /// Registers the slots. `its_device` is null for the path over the control connection. Throws
  /// `unavailable`.
  Path(std::uint32_t its_number, const Device* its_device, std::unique_ptr<QueuePair> pair,
       const SlotCounts& counts);
  /// Destroys the queue pair first, so that the device works with its memory no more.
  ~Path();
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

  QueuePair& pair() const noexcept { return *pair_; }
  bool has_pair() const noexcept { return pair_ != nullptr; }
  void destroy_pair() noexcept { pair_.reset(); }
  const SlotCounts& counts() const noexcept { return counts_; }
  std::size_t slot_bytes() const noexcept { return slots_->bytes(); }
  /// Returns whether requests complete only while the peer's process runs.
  bool by_process() const noexcept { return by_process_; }
  bool is_live() const noexcept { return state == State::live; }
  bool works() const noexcept { return state == State::live || state == State::idle; }
  bool is_sound() const noexcept;

  /// Asks to receive in all slots, of which there shall be so many. Called once, before the peer
  /// sends anything. Throws `unavailable`.
  void open(const SlotCounts& counts);
  /// Asks to receive in a slot. Returns false where the queue pair has failed.
  [[nodiscard]] bool receive(std::uint32_t slot) noexcept;
  /// Takes note that a request to receive has ended.
  void has_received() noexcept { --receives_; }
  const std::byte* slot(std::uint32_t its) const noexcept { return slots_->slot(its); }
  /// Takes room that the peer gives back. Returns false where nobody had taken it.
  bool take_room(std::uint32_t given) noexcept {
    if (given > counts_.receives - room_) return false;
    room_ += given;
    return true;
  }
  /// Takes note that the frame in a slot has been handled. Returns false where there cannot be so
  /// many of them.
  bool has_handled() noexcept {
    if (unreturned_room_ == counts_.receives) return false;
    ++unreturned_room_;
    return true;
  }
  bool owes_room() const noexcept { return unreturned_room_ >= counts_.return_room_at; }

  bool has_slot() const noexcept { return !free_slots_.empty(); }
  bool can_send() const noexcept { return is_live() && room_ > 0 && has_slot(); }
  std::uint32_t under_way() const noexcept {
    return counts_.sends - static_cast<std::uint32_t>(free_slots_.size());
  }
  /// Sends a frame, for which there is a slot. Returns false where the queue pair takes none: the
  /// frame lies in slot `last_slot()` then.
  [[nodiscard]] bool send(Frame frame, std::span<const std::byte> payload) noexcept;
  std::uint32_t last_slot() const noexcept { return last_slot_; }
  /// Frees the slot of a frame that has left, or will not.
  void free_slot(std::uint32_t slot) noexcept { free_slots_.push_back(slot); }
  /// Returns the frame with its payload that was sent from a slot.
  std::span<const std::byte> sent(std::uint32_t slot) const noexcept {
    return {slots_->slot(slot), sent_bytes_[slot - counts_.to_receive()]};
  }

  /// Takes note that the peer's device has acknowledged something.
  void has_acknowledged() noexcept { ++acknowledged_; }
  /// Silence counts from now on where nothing was under way: nobody may have looked for long.
  void await_acknowledgements() noexcept {
    if (under_way() == 0 && reads == 0) acknowledged_then_.reset();
  }
  /// Returns for how long the peer's device has acknowledged nothing, although something is under
  /// way.
  std::chrono::nanoseconds silence(TimePoint now) noexcept;
  /// Returns whether all requests have ended.
  bool is_drained() const noexcept {
    return receives_ == 0 && under_way() == 0 && reads == 0 && to_read.empty();
  }

  const std::uint32_t number;
  const Device* const device;
  const std::string where;      ///< The name of the port, or "TCP".
  std::uint32_t peer_port = 0;  ///< The number of the peer's port.
  State state = State::introduced;
  bool armed = false;
  bool heard = false;  ///< Whether anything has ever arrived.
  // Used while it is introduced: whether this end has sent its probe, and each has said that it has
  // heard the other's.
  bool tried = false, said_heard = false, peer_has_heard = false;
  std::optional<TimePoint> until;  ///< It is given up then.
  std::string why_failed;
  bool was_live = false;  ///< Whether it was live when it failed.
  /// Messages to be read, and those that the device reads, by the number of the request.
  std::deque<Reading> to_read;
  std::array<std::optional<Reading>, kMostReads> reading;
  std::uint32_t reads = 0;  ///< How many of them the device reads.
  /// The bytes of this rank's messages that the peer is to read over the path, and has not answered
  /// yet.
  std::size_t offered_bytes = 0;

 private:
  void register_slots();
  std::uint32_t key() const noexcept { return region_ != nullptr ? region_->local_key() : 0; }

  SlotCounts counts_;
  std::unique_ptr<Slots> slots_;     // destroyed after the queue pair that uses them
  std::unique_ptr<QueuePair> pair_;  // constant until the end
  const bool by_process_;
  std::unique_ptr<Region> region_;  // the slots; null where no device is to use them
  std::uint32_t receives_ = 0;      // requests to receive under way
  std::vector<std::uint32_t> free_slots_;
  std::vector<std::uint32_t> sent_bytes_;  // by slot to send from
  std::uint32_t last_slot_ = 0;
  std::uint32_t room_ = 0;             // frames for which the peer has slots
  std::uint32_t unreturned_room_ = 0;  // handled frames of which the peer has not been told
  std::uint64_t acknowledged_ = 0;     // requests that the peer's device has acknowledged
  // These hold what silence() found last: that number, and since when nothing has changed.
  std::optional<std::uint64_t> acknowledged_then_;
  TimePoint unchanged_since_{};
};

}  // namespace tutti::qp
