// Matches messages with receives, by source (or any) and tag (or any), in the order in which the
// messages were sent and the receives were called.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/p2p/transfer.h"

namespace tutti {

/// An unexpected message, or a request to send one: it arrived before a receive that matches it.
struct UnexpectedMessage {
  int source = 0;
  int tag = 0;
  DataType type = DataType::uint8;
  std::size_t count = 0;
  std::uint32_t id = 0;  ///< The sender's number for it; a sender counts its messages to this rank.
  /// Whether the payload is here; otherwise it is sent when this rank asks for it.
  bool eager = false;
  Transfer* own = nullptr;  ///< This rank's send to itself, which waits for its receive; else null.
  std::vector<std::byte> payload;
  Link<UnexpectedMessage> link;
};

/// Holds posted receives and unexpected messages. One thread at a time (the owner of the engine)
/// uses it. Invariant: no receive that is posted here matches an unexpected message that is kept
/// here. Lists are searched from the oldest entry on, since matching by "any" requires it. This
/// takes linear time, but one step if programs receive in the order of sending.
class Matching {
 public:
  /// Removes and returns the oldest receive that matches such a message, or returns null.
  Transfer* take_posted(int source, int tag) noexcept;
  void post(Transfer& receive) noexcept {
    assert(receive.call.direction == Direction::recv && !receive.done);
    posted_.push_back(receive);
  }

  /// Removes and returns the oldest unexpected message that matches `receive`, or returns null. The
  /// caller gives it back with forget().
  UnexpectedMessage* take_unexpected(const TransferCall& receive) noexcept;
  /// Adds a new unexpected message, as the youngest, which the caller fills in.
  UnexpectedMessage& keep();
  void forget(UnexpectedMessage& message) noexcept;

  /// Returns, for diagnosis, the oldest unexpected message from `source` (or any), with any tag.
  const UnexpectedMessage* oldest_from(int source) const noexcept;

  void clear() noexcept;

 private:
  using UnexpectedMessages = IntrusiveList<UnexpectedMessage, &UnexpectedMessage::link>;

  StagedTransfers posted_;
  UnexpectedMessages unexpected_;
  UnexpectedMessages spare_;
  std::deque<UnexpectedMessage> pool_;  // owns all unexpected messages, and never shrinks
};

}  // namespace tutti
