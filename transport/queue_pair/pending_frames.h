// Declares what a connection keeps of frames that have not been sent, handled or acknowledged yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/queue_pair/channels.h"
#include "transport/queue_pair/frame.h"
#include "transport/queue_pair/path.h"
#include "transport/queue_pair/registrations.h"

namespace tutti::qp {

/// Holds a frame that waits to be sent, with its payload.
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
  Registrations::Use use;            // of memory that was offered, so that its end is told

  void keep();  // Copies `data` to memory of the entry's own.
};
/// Describes the message whose parts are arriving.
struct Incoming {
  std::byte* begin = nullptr;  // null if it is discarded
  std::size_t bytes = 0, there = 0;
  Receiver* channel = nullptr;
  Receiver::Arrival* arrival = nullptr;  // of that channel

  bool none() const noexcept { return there == bytes; }
};

/// Holds a frame that was sent over a path that has failed, and may not have arrived.
struct InDoubt {
  Frame frame;
  std::vector<std::byte> payload;
};
/// Holds a frame that waits for those before it.
struct EarlyFrame {
  Path* path = nullptr;  // where it lies in a slot of that path
  std::uint32_t slot = 0;
  std::size_t bytes = 0;             // 0 where there is none
  std::unique_ptr<std::byte[]> own;  // where it has left its slot
};

}  // namespace tutti::qp
