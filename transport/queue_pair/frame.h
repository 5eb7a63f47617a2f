// Declares the frames that peers send each other, and the memory that one connection takes. Each
// frame is one send, and lies in one slot of its receiver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/wire.h"

namespace tutti::qp {

enum class FrameKind : std::uint16_t {
  /// The first part of a message of `header.length` bytes. All parts but the last fill their slots.
  message = 1,
  more,    ///< The next part of the message; nothing comes between the parts but `room`.
  credit,  ///< A frame that carries nothing but what its channel has released.
  /// A frame that carries nothing but room. It needs none at its receiver, which has
  /// kRoomSlots for such frames.
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
  std::uint32_t zero = 0;
};
static_assert(std::has_unique_object_representations_v<Offer>);

struct Frame {
  FrameKind kind = FrameKind::message;
  /// The sender of this frame has made so many slots ready again since it last said so.
  std::uint16_t room = 0;
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
static_assert(sizeof(Frame) == 32 && sizeof(FrameKind) == 2);
static_assert(std::has_unique_object_representations_v<Frame>);

inline constexpr std::size_t kSlotBytes = 16 << 10;
/// The payload of a message that one slot holds.
inline constexpr std::size_t kPartBytes = kSlotBytes - sizeof(Frame);
/// Frames that a rank may have sent and its peer not yet handled, beside those of kind `room`.
inline constexpr std::uint32_t kReceiveSlots = 16;
/// A receiver gives room back when it has handled this many frames, or with the next frame.
inline constexpr std::uint32_t kReturnRoomAt = 4;
/// A frame of kind `room` gives back at least kReturnRoomAt of kReceiveSlots, all of which its
/// receiver has used, so there are never more of them under way than this.
inline constexpr std::uint32_t kRoomSlots = kReceiveSlots / kReturnRoomAt;
/// Slots from which this rank sends.
inline constexpr std::uint32_t kSendSlots = 8;
inline constexpr std::uint32_t kSlots = kReceiveSlots + kRoomSlots + kSendSlots;
/// Requests to read that a connection has under way, where the devices allow as many.
inline constexpr std::uint32_t kMostReads = 16;
/// Messages that do not fit one slot are offered where they lie in registered memory.
inline constexpr std::size_t kLeastOfferBytes = kPartBytes + 1;
static_assert(kSlots * kSlotBytes <= 512 << 10, "the registered memory of a connected peer");

}  // namespace tutti::qp
