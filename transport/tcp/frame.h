// What goes over a connection once both ends are authenticated: frames, one after the other.
#pragma once

#include <cstdint>

#include "common/crc32c.h"
#include "common/wire.h"

namespace tutti::tcp {

enum class FrameKind : std::uint16_t {
  open = 1,     ///< The initiator's first: it stays with this connection; `channel` is its Use.
  message,      ///< Of a channel; `header.length` payload bytes follow.
  credit,       ///< Nothing but its credits.
  status_page,  ///< The sender's status page in the group, less its first word.
  status_page_request,  ///< Wants the peer's.
};

/// What a connection is for.
enum class Use : std::int32_t {
  data,
  lifeline,  ///< Its end says that the process has ended; see lifelines.h.
};

struct Frame {
  FrameKind kind = FrameKind::message;
  /// How many messages the sender of this frame has released, on the channel of the same number in
  /// the other direction, since it last said so.
  std::uint16_t credits = 0;
  std::uint32_t group = 0;  ///< The communicator that the frame is for: Subset::id_with().
  std::int32_t channel = 0;
  std::uint32_t check = 0;  ///< check_of(), where checksums are asked for; else 0.
  Header header;            ///< Of a message; of the others its length counts, and its crc.
};
static_assert(sizeof(Frame) == 32);

/// CRC-32C of a frame less its `check`.
inline std::uint32_t check_of(Frame frame) noexcept {
  frame.check = 0;
  return crc32c(&frame, sizeof frame);
}

}  // namespace tutti::tcp
