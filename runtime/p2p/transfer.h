// One send or receive: what was called, and how far it has come.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include <tutti/tutti.hpp>

#include "common/clock.h"
#include "common/intrusive_list.h"
#include "transport/memory.h"

namespace tutti {

class Operation;

enum class Direction : std::uint8_t { send, recv };

struct TransferCall {
  Direction direction = Direction::send;
  DataType type = DataType::uint8;
  int peer = 0;  ///< kAnySource: any.
  int tag = 0;   ///< kAnyTag: any.
  std::size_t count = 0;
  std::byte* buffer = nullptr;  ///< Of a send: only read.
  std::chrono::milliseconds timeout{0};
  Received* received = nullptr;  ///< Where to tell what a receive got; null: nowhere.
  Group* group = nullptr;        ///< To be made when it ends.
  bool (*interrupted)() = nullptr;

  std::size_t bytes() const noexcept { return count * size_of(type); }
};

/// From PointToPoint::start() until it is taken as ended, it belongs to whoever owns the engine.
struct Transfer {
  TransferCall call;
  TimePoint deadline = TimePoint::max();
  Operation* operation = nullptr;  ///< Null: a blocking call waits for it.

  bool done = false;
  Received received;  ///< Of a receive, once it is matched.

  // The protocol's own.
  int watched = 0;           ///< The peer whose messages it waits for, or kAnySource.
  std::uint32_t id = 0;      ///< Of the send that it is matched with.
  std::size_t moved = 0;     ///< Bytes.
  Memory memory;             ///< A send's buffer, where it is sent without a copy.
  Link<Transfer> live_link;  ///< In the list of all that are under way, or of those that ended.
  Link<Transfer> stage_link;
};
using LiveTransfers = IntrusiveList<Transfer, &Transfer::live_link>;
using StagedTransfers = IntrusiveList<Transfer, &Transfer::stage_link>;

/// Throws `usage` naming the argument, what was given and what is possible.
void check_transfer(const TransferCall& call, int size);

/// "send(8 x f32) to rank 1 with tag 3", for messages.
std::string describe(const TransferCall& call);

}  // namespace tutti
