// The frames that make up the data on a connection once both ends are authenticated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/crc32c.h"
#include "common/wire.h"

namespace tutti::tcp {

enum class FrameKind : std::uint16_t {
  message = 1,  ///< A message of a channel; `header.length` payload bytes follow.
  credit,       ///< A frame that carries nothing but its credits.
  /// The sender's status page in the group, without the page's first word.
  status_page,
  status_page_request,  ///< A request for the peer's status page.
};

struct Frame {
  FrameKind kind = FrameKind::message;
  /// How many messages the sender of this frame has released, on the channel of the same number in
  /// the other direction, since it last said so.
  std::uint16_t credits = 0;
  std::uint32_t group = 0;  ///< The communicator that the frame is for: Subset::id_with().
  std::int32_t channel = 0;
  /// The check_of() this frame where checksums are enabled, and 0 otherwise.
  std::uint32_t check = 0;
  Header header;  ///< The message's header. Frames of other kinds use only its length and crc.
};
static_assert(sizeof(Frame) == 32 && sizeof(FrameKind) == 2);
static_assert(offsetof(Frame, group) == 4 && offsetof(Frame, check) == 12 &&
              offsetof(Frame, header) == 16);
static_assert(std::has_unique_object_representations_v<Frame>, "its checksum covers every byte");

/// Returns the CRC-32C of a frame with `check` as 0.
inline std::uint32_t check_of(Frame frame) noexcept {
  frame.check = 0;
  return crc32c(&frame, sizeof frame);
}

}  // namespace tutti::tcp
