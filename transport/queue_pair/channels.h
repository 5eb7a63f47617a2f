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

#include "transport/channel.h"
#include "transport/mesh/group.h"
#include "transport/queue_pair/frame.h"
#include "transport/queue_pair/registrations.h"
#include "transport/queue_pair/slots.h"

namespace tutti::qp {

class Connection;
struct Group;

/// The most messages of a channel that the receiver has not released. A receiver has memory for all
/// of them, so that a channel that nobody reads does not block the others of its connection.
inline constexpr std::uint32_t kWindow = 8;
/// A receiver returns credits when it has released this many messages, or earlier with the next
/// message in the other direction.
inline constexpr std::uint32_t kReturnAt = 4;
static_assert(kWindow - kReturnAt >= 2, "two messages fit when all before are released");
static_assert((1u << 16) % kWindow == 0, "numbers of messages are sent modulo 2^16");

/// Provides memory for the messages of a window. There are as many blocks as were ever in use at
/// the same time.
class Staging {
 public:
  explicit Staging(std::size_t max_message_bytes) : bytes_(max_message_bytes + 1) {}

  /// Returns a block for the next message, the first that is free, since it may be in the cache. It
  /// stays free until use(). Throws `unavailable`.
  std::byte* next();
  void use(const std::byte* block) noexcept { find(block).used = true; }
  void free(const std::byte* block) noexcept { find(block).used = false; }
  /// Lets devices write to a block.
  void add_to(Registrations& registrations, const std::byte* block);
  std::size_t memory_bytes() const noexcept { return blocks_.size() * bytes_; }

 private:
  struct Block {
    std::unique_ptr<Pages> pages;
    std::shared_ptr<void> registered;  // ends before the pages do
    bool used = false;
  };
  Block& find(const std::byte* block) noexcept;

  const std::size_t bytes_;
  std::vector<Block> blocks_;
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

  /// Holds a message of the window.
  struct Arrival {
    enum class State : std::uint8_t {
      arriving,  ///< Its parts come in slots.
      offered,   ///< It lies in the sender's memory, and waits until somebody asks for it.
      reading,   ///< The device reads it, or will.
      declined,  ///< It will come in slots.
      complete,
    };
    State state = State::arriving;
    Header header;
    Offer offer;
    std::byte* payload = nullptr;  ///< Where it is or goes; null while it is only offered.
    std::byte* staged = nullptr;   ///< The block of `staging` that it has, or null.

    bool in_program() const noexcept { return payload != nullptr && payload != staged; }
  };
  Arrival& at(std::uint32_t message) noexcept { return window[message % kWindow]; }
  bool has_message() const noexcept { return announced != released; }
  /// Returns the message of a number that has been announced and not released, or null.
  Arrival* find(std::uint16_t its_number) noexcept {
    const auto ahead = static_cast<std::uint16_t>(its_number - released);
    return ahead < announced - released ? &at(released + ahead) : nullptr;
  }
  /// The oldest message, which must be there.
  Arrival& first() noexcept {
    assert(has_message());
    return at(released);
  }

  Group& group;
  const int number;
  Staging staging;
  std::array<Arrival, kWindow> window;
  // Counts of messages: those whose header has arrived, and those that are released.
  std::uint32_t announced = 0, released = 0;
  std::uint32_t unreturned = 0;  ///< Released messages of which the sender has not been told.
  /// Says whether an offered message is read to `staging` at once even if it is the first: so it is
  /// where the caller has last asked for one in memory of the channel.
  bool reads_ahead = false;
  /// The next messages that arrive may go there, one behind the other.
  std::optional<Memory> expected;

 private:
  Connection& connection_;
};

/// Represents the sending end of a channel, which is guarded as Receiver is. Messages are copied
/// from its memory, or from the program's, to slots of the connection, or the peer's device reads
/// them in the program's memory.
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

  /// A message that the peer's device may read in the program's memory.
  struct Offered {
    bool under_way = false;  ///< Until the peer has answered.
    /// Says whether the message belongs to a call that has failed, and need not arrive any more.
    bool dropped = false;
    std::uint16_t number = 0;
    Header header;
    Offer offer;
    Registrations::Use use;
    std::unique_ptr<std::byte[]> own;  ///< A copy, where the program's memory has ended.
  };
  /// Returns the offer of a number that is under way, or null.
  Offered* offer(std::uint16_t its_number) noexcept {
    Offered& found = offers[its_number % kWindow];
    return found.under_way && found.number == its_number ? &found : nullptr;
  }

  Group& group;
  const int number;
  const std::size_t max_message_bytes;
  Staging staging;
  std::optional<Memory> in_hand;  ///< The message that is acquired and not posted.
  bool in_place = false;          ///< Whether that is the program's memory.
  /// These count messages: those that are posted, and those that the peer has released.
  std::uint32_t posted = 0, released = 0;
  /// Posted messages that still need the program's memory.
  std::uint32_t in_program = 0;
  std::array<Offered, kWindow> offers;  ///< By number.

 private:
  Connection& connection_;
};

using mesh::GroupContext;

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
  mesh::PeerPage peer_page;
};

}  // namespace tutti::qp
