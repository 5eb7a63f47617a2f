// One communicator's part of one connection: its channels, and what is known of the peer's board.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "common/clock.h"
#include "transport/board.h"
#include "transport/tcp/channels.h"

namespace tutti::tcp {

/// What the groups of one communicator have in common. Outlives them.
struct GroupContext {
  std::size_t max_message_bytes = 0;
  Board* board = nullptr;  ///< This rank's.
  int doorbell_fd = -1;    ///< To wake those of this communicator who sleep; -1: nobody does.
};

/// Under its connection's lock, but for the channels' own functions and `gone`.
struct Group {
  Group(Connection& connection, const GroupContext& its, std::uint32_t its_id)
      : context(its), id(its_id), connection_(connection) {}

  /// Both ends of channel `number`, made when first asked for, or when the first message comes.
  struct Channel {
    Channel(Connection& connection, const Group& group, int number)
        : receiver(connection, group.id, number, group.context.max_message_bytes),
          sender(connection, group.id, number, group.context.max_message_bytes, receiver) {}
    TcpRecvChannel receiver;
    TcpSendChannel sender;
  };
  Channel& channel(int number) {
    std::unique_ptr<Channel>& made = channels[number];
    if (made == nullptr) made = std::make_unique<Channel>(connection_, *this, number);
    return *made;
  }

  const GroupContext& context;
  const std::uint32_t id;  ///< Subset::id_with() of the peer.
  std::map<int, std::unique_ptr<Channel>> channels;
  Board board{};                      ///< The peer's, as it last came.
  std::optional<TimePoint> heard_at;  ///< When that was; none: never.
  bool asked = false;                 ///< For a newer one.

 private:
  Connection& connection_;
};

/// What a board is on the wire: all but its first word, since who sleeps is the owner's business.
inline constexpr std::size_t kBoardSkip = sizeof(Board::sleepers);
inline constexpr std::size_t kBoardBytes = sizeof(Board) - kBoardSkip;
using BoardBytes = std::array<std::byte, kBoardBytes>;

/// What others see of `board` at this moment; its owner may be writing to it.
BoardBytes read_board(const Board& board);
/// The other way; others may be reading it.
void write_board(Board& board, const BoardBytes& bytes);

}  // namespace tutti::tcp
