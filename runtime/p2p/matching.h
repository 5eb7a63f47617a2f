// Which receive gets which message: by (source or any, tag or any), in the order in which they were
// sent and in which the receives were called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/p2p/transfer.h"

namespace tutti {

/// A message that came before a receive for it, or the request to send one.
struct UnexpectedMessage {
  int source = 0;
  int tag = 0;
  DataType type = DataType::uint8;
  std::size_t count = 0;
  std::uint32_t id = 0;     ///< Of the sender, which counts its messages to this rank.
  bool eager = false;       ///< The payload is here; else it comes when it is asked for.
  Transfer* own = nullptr;  ///< This rank's own send to itself, which waits for its receive.
  std::vector<std::byte> payload;
  Link<UnexpectedMessage> link;
};

/// Own thread only (the engine's owner). Invariant: no receive that is posted here matches an
/// unexpected message that is kept here. Lists are searched from the oldest on, as matching by
/// "any" needs: in linear time, which is one step where programs receive in the order of sending.
class Matching {
 public:
  /// The oldest receive that waits for such a message; it is no longer posted. Null: none.
  Transfer* take_posted(int source, int tag) noexcept;
  void post(Transfer& receive) noexcept { posted_.push_back(receive); }

  /// The oldest unexpected message for `receive`; give it back with forget(). Null: none.
  UnexpectedMessage* take_unexpected(const TransferCall& receive) noexcept;
  /// A new one, the youngest, to be filled in.
  UnexpectedMessage& keep();
  void forget(UnexpectedMessage& message) noexcept;

  /// The oldest message kept from `source` (or any), whatever its tag, for diagnosis.
  const UnexpectedMessage* oldest_from(int source) const noexcept;

  void clear() noexcept;

 private:
  using UnexpectedMessages = IntrusiveList<UnexpectedMessage, &UnexpectedMessage::link>;

  StagedTransfers posted_;
  UnexpectedMessages unexpected_;
  UnexpectedMessages spare_;
  std::deque<UnexpectedMessage> pool_;  // all of them, for ever: as many as were kept at a time
};

}  // namespace tutti
