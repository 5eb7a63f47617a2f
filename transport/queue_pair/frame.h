// Declares the frames that peers send each other, and the memory that one connection takes. Each
// frame is one send, and lies in one slot of its receiver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/wire.h"

namespace tutti::qp {

enum class FrameKind : std::uint8_t {
  /// The first part of a message of `header.length` bytes. All parts but the last fill their slots.
  message = 1,
  more,    ///< The next part of the message; nothing comes between the parts.
  credit,  ///< A frame that carries nothing but what its channel has released.
  /// A frame that carries nothing but room. It needs none at its receiver, which has
  /// SlotCounts::rooms() for such frames, and has no sequence number.
  room,
  /// The sender's status page in the group, without the page's first word.
  status_page,
  status_page_request,  ///< A request for the peer's status page.
  /// A message that lies in registered memory of the sender, at the place that the payload, an
  /// Offer, names. It takes its turn in the channel here. The receiver answers with `taken` when
  /// its
  /// device has read the message, or with `decline`, and then gets it in slots.
  offer,
  taken,
  decline,
  answer,    ///< The first part of a message that was declined; `more` follow.
  withdraw,  ///< The message shall not be read any more; `taken` or `decline` says whether it was.
};

/// Says where a message of the sender lies, for the receiver's device.
struct Offer {
  std::uint64_t address = 0;
  std::uint32_t remote_key = 0;
  std::uint32_t path = 0;  ///< The number of the path over which the key serves.
};
static_assert(std::has_unique_object_representations_v<Offer>);

struct Frame {
  FrameKind kind = FrameKind::message;
  /// The sender of this frame has made so many slots of this path ready again since it last said
  /// so.
  std::uint8_t room = 0;
  /// Counts the frames of the connection, over all its paths, modulo 2^16: they are handled in this
  /// order.
  std::uint16_t sequence = 0;
  std::uint32_t group = 0;  ///< The communicator that the frame is for: Subset::id_with().
  std::int32_t channel = 0;
  /// The sender of this frame has released so many messages, on the channel of the same number in
  /// the other direction, since it last said so.
  std::uint16_t released = 0;
  /// Holds the number of the message in its channel, modulo 2^16: of one that is offered, and in
  /// all frames about it.
  std::uint16_t number = 0;
  Header header;  ///< The header of a message, an offer or an answer; unused in other frames.
};
static_assert(sizeof(Frame) == 32 && sizeof(FrameKind) == 1);
static_assert(std::has_unique_object_representations_v<Frame>);

inline constexpr std::size_t kSlotBytes = 16 << 10;
/// The payload of a message that one slot holds.
inline constexpr std::size_t kPartBytes = kSlotBytes - sizeof(Frame);
/// The slots of a connection: frames that a rank may have sent and its peer not yet handled, beside
/// those of kind `room`; and slots from which it sends.
inline constexpr std::uint32_t kReceiveSlots = 16, kSendSlots = 8;
/// A receiver gives room back when it has handled this many frames, or with the next frame.
inline constexpr std::uint32_t kReturnRoomAt = 4;
/// The most paths of a connection.
inline constexpr std::uint32_t kMostPaths = 8;

/// Says how many slots a path has for what. A path has those of the connection, and several paths
/// have shares of them.
struct SlotCounts {
  std::uint32_t receives = kReceiveSlots, sends = kSendSlots, return_room_at = kReturnRoomAt;

  /// A frame of kind `room` gives back at least `return_room_at` of `receives`, all of which its
  /// receiver has used, so there are never more of them under way than this.
  constexpr std::uint32_t rooms() const noexcept { return receives / return_room_at; }
  constexpr std::uint32_t to_receive() const noexcept { return receives + rooms(); }
  constexpr std::uint32_t all() const noexcept { return to_receive() + sends; }
};
constexpr SlotCounts slots_of_path(std::uint32_t paths) noexcept {
  if (paths <= 1) return {};
  if (paths == 2) return {kReceiveSlots / 2, kSendSlots / 2, kReturnRoomAt};
  return {kReceiveSlots / 4, kSendSlots / 4, kReturnRoomAt / 2};
}
/// Frames that are sent, from the oldest whose arrival is not certain. A power of two.
inline constexpr std::uint32_t kMostInFlight = 32;
/// Frames may be so far ahead of the one that is handled next: beside those in flight, those that
/// have arrived and wait in their slots. A power of two.
inline constexpr std::uint32_t kMostAhead = 128;
static_assert(kMostInFlight + kMostPaths * slots_of_path(kMostPaths).receives <= kMostAhead);
/// Requests to read that a connection has under way, where the devices allow as many.
inline constexpr std::uint32_t kMostReads = 16;
/// Messages that do not fit one slot are offered where they lie in registered memory.
inline constexpr std::size_t kLeastOfferBytes = kPartBytes + 1;
/// The most paths that are made where no setting asks for more.
inline constexpr std::uint32_t kMostPathsUnasked = 4;
/// Returns the memory that a connection registers for its slots.
constexpr std::size_t slot_bytes_of(std::uint32_t paths) noexcept {
  return paths * slots_of_path(paths).all() * kSlotBytes;
}
static_assert(slot_bytes_of(1) <= 512 << 10 && slot_bytes_of(2) <= 512 << 10 &&
              slot_bytes_of(3) <= 512 << 10 && slot_bytes_of(kMostPathsUnasked) <= 512 << 10);

}  // namespace tutti::qp
