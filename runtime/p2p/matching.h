// Matches messages with receives, by source (or any) and tag (or any), in the order in which the
// messages were sent and the receives were called.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/p2p/keyed_table.h"
#include "runtime/p2p/transfer.h"

namespace tutti {

/// The number of ways in which a receive may name its message: with a source and a tag, from any
/// source, with any tag, or both.
inline constexpr std::size_t kWildcards = 4;

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

  // Members that only Matching uses.

  /// Enters the message under one of the names by which a receive may find it.
  struct Entry {
    UnexpectedMessage* message = nullptr;
    std::uint64_t key = 0;
    Link<Entry> link;
  };
  std::array<Entry, kWildcards> entries;
  Link<UnexpectedMessage> spare_link;
};

/// Holds posted receives and unexpected messages. One thread at a time (the owner of the engine)
/// uses it. Invariant: no receive that is posted here matches an unexpected message that is kept
/// here. A match takes constant time, whatever the number of messages and receives: a message looks
/// for the oldest receive under each of its four names, and a receive for the oldest message that
/// has its name.
class Matching {
 public:
  /// Removes and returns the oldest receive that matches such a message, or returns null.
  Transfer* take_posted(int source, int tag) noexcept;
  void post(Transfer& receive) noexcept;

  /// Removes and returns the oldest unexpected message that matches `receive`, or returns null. The
  /// caller gives it back with forget().
  UnexpectedMessage* take_unexpected(const TransferCall& receive) noexcept;
  /// Adds a new unexpected message, as the youngest, whose other members the caller fills in.
  UnexpectedMessage& keep(int source, int tag);
  void forget(UnexpectedMessage& message) noexcept { spare_.push_back(message); }

  /// Returns, for diagnosis, the oldest unexpected message from `source` (or any), with any tag.
  const UnexpectedMessage* oldest_from(int source) const noexcept;

  void clear() noexcept;

 private:
  using Entry = UnexpectedMessage::Entry;

  UnexpectedMessage* oldest(const TransferCall& receive) const noexcept;
  void remove(UnexpectedMessage& message) noexcept;

  KeyedTable<Transfer, &Transfer::stage_link, &Transfer::key> posted_;
  std::uint64_t posts_ = 0;                            // the number of receives ever posted
  std::array<std::size_t, kWildcards> posted_with_{};  // the number of receives posted of each kind
  std::array<KeyedTable<Entry, &Entry::link, &Entry::key>, kWildcards> unexpected_;
  IntrusiveList<UnexpectedMessage, &UnexpectedMessage::spare_link> spare_;
  std::deque<UnexpectedMessage> pool_;  // owns all unexpected messages, and never shrinks
};

}  // namespace tutti
