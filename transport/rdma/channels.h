// Declares the two ends of a channel over a connection, and a group: one communicator's part of the
// connection. Each channel has a window of its own.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "transport/channel.h"
#include "transport/status_page.h"

namespace tutti::rdma {

class Connection;
struct Group;

/// The most messages of a channel that the receiver has not released. A receiver has memory for all
/// of them, so that a channel that nobody reads does not block the others of its connection.
inline constexpr std::uint32_t kWindow = 8;
/// A receiver returns credits when it has released this many messages, or earlier with the next
/// message in the other direction.
inline constexpr std::uint32_t kReturnAt = 4;
static_assert(kWindow - kReturnAt >= 2, "two messages fit when all before are released");

/// Provides memory for the messages of a window. There are as many as were ever in use at the same
/// time.
class Staging {
 public:
  explicit Staging(std::size_t max_message_bytes) : bytes_(max_message_bytes) {}

  /// Returns memory for the next message. Throws `unavailable`.
  std::byte* next();
  void use() noexcept { next_ = (next_ + 1) % kWindow; }
  /// Restarts at the first, which is still in the cache. Called when all are free.
  void begin_again() noexcept { next_ = 0; }
  std::size_t memory_bytes() const noexcept { return memory_.size() * bytes_; }

 private:
  const std::size_t bytes_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::size_t next_ = 0;
};

/// Represents the receiving end of a channel. All members but the functions of RecvChannel belong
/// to the connection, whose lock guards them.
class Receiver final : public RecvChannel {
 public:
  Receiver(Connection& connection, Group& its_group, int its_number, std::size_t max_bytes)
      : group(its_group), number(its_number), staging(max_bytes), connection_(connection) {}

  std::optional<Message> peek() override;
  const std::byte* get(const Memory& place) override;
  void release() override;

  bool has_message() const noexcept { return announced != released; }
  /// Returns whether the payload of the oldest message has arrived.
  bool is_complete() const noexcept { return completed != released; }
  const Header& header() const noexcept { return headers[released % kWindow]; }

  Group& group;
  const int number;
  Staging staging;
  std::array<Header, kWindow> headers{};
  std::array<std::byte*, kWindow> payloads{};  ///< Where those of the complete messages are.
  // Counts of messages: those whose header has arrived, those that are complete (all but the last
  // at least), and those that are released.
  std::uint32_t announced = 0, completed = 0, released = 0;
  std::uint32_t unreturned = 0;  ///< Released messages of which the sender has not been told.
  /// The next message that arrives may go there.
  std::optional<Memory> expected;

 private:
  Connection& connection_;
};

/// Represents the sending end of a channel, which is guarded as Receiver is. Messages are copied
/// from its memory, or from the program's, to slots of the connection.
class Sender final : public SendChannel {
 public:
  Sender(Connection& connection, Group& its_group, int its_number, std::size_t max_bytes)
      : group(its_group),
        number(its_number),
        max_message_bytes(max_bytes),
        staging(max_bytes),
        connection_(connection) {}

  std::optional<Span> acquire(std::size_t bytes) override;
  MemoryKinds zero_copy() const noexcept override {
    return MemoryKind::host | MemoryKind::shared | MemoryKind::registered;
  }
  bool acquire_zero_copy(const Memory& message) override;
  bool zero_copy_done() const noexcept override;
  void post(const Header& header) override;

  bool is_full() const noexcept { return posted - released >= kWindow; }

  Group& group;
  const int number;
  const std::size_t max_message_bytes;
  Staging staging;
  std::optional<Memory> in_hand;  ///< The message that is acquired and not posted.
  bool in_place = false;          ///< Whether that is the program's memory.
  // Counts of messages: those that are posted, those that have left their memory for slots, and
  // those that the peer has released.
  std::uint32_t posted = 0, copied = 0, released = 0;
  std::uint32_t last_in_place = 0;  ///< The count of posted messages at the last in-place one.

 private:
  Connection& connection_;
};

/// Holds the members that the groups of one communicator share. This record outlives the groups.
struct GroupContext {
  std::size_t max_message_bytes = 0;
  StatusPage* status_page = nullptr;  ///< The status page of this rank.
  /// The doorbell of the threads that sleep in this communicator, or -1 where none ever does.
  int doorbell_fd = -1;
};

/// Holds one communicator's part of one connection, whose lock guards it.
struct Group {
  Group(Connection& its_connection, const GroupContext& its_context, std::uint32_t its_id)
      : context(its_context), id(its_id), connection(its_connection) {}

  struct Channel {
    Receiver receiver;
    Sender sender;
  };
  /// Returns both ends of channel `number`, which are made when they are first used, or when the
  /// first message arrives.
  Channel& channel(int number);
  std::size_t memory_bytes() const;

  const GroupContext& context;
  const std::uint32_t id;  ///< The Subset::id_with() the peer.
  Connection& connection;
  std::map<int, std::unique_ptr<Channel>> channels;
  StatusPage status_page{};           ///< The peer's page, as it was received last.
  std::optional<TimePoint> heard_at;  ///< When that was; none if never.
  bool asked = false;                 ///< Whether a newer one has been requested.
};

}  // namespace tutti::rdma
