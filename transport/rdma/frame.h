// Declares the frames that peers send each other, and the memory that one connection takes. Each
// frame is one send, and lies in one slot of its receiver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/wire.h"

namespace tutti::rdma {

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
};

struct Frame {
  FrameKind kind = FrameKind::message;
  /// The sender of this frame has made so many slots ready again since it last said so.
  std::uint16_t room = 0;
  std::uint32_t group = 0;  ///< The communicator that the frame is for: Subset::id_with().
  std::int32_t channel = 0;
  /// The sender of this frame has released so many messages, on the channel of the same number in
  /// the other direction, since it last said so.
  std::uint16_t released = 0;
  std::uint16_t zero = 0;
  Header header;  ///< The message's header; unused in frames of other kinds.
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
static_assert(kSlots * kSlotBytes <= 512 << 10, "the registered memory of a connected peer");

}  // namespace tutti::rdma
