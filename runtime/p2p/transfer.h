// A send or receive: the arguments of the call, and its progress.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <tutti/tutti.hpp>

#include "common/clock.h"
#include "common/intrusive_list.h"
#include "transport/memory.h"

namespace tutti {

class Operation;

enum class Direction : std::uint8_t { send, recv };
std::string_view to_string(Direction direction) noexcept;

struct TransferCall {
  Direction direction = Direction::send;
  DataType type = DataType::uint8;
  int peer = 0;  ///< May be kAnySource in a receive.
  int tag = 0;   ///< May be kAnyTag in a receive.
  std::size_t count = 0;
  std::byte* buffer = nullptr;  ///< A send only reads it.
  std::chrono::milliseconds timeout{0};
  Received* received = nullptr;  ///< Where the result of a receive is stored; may be null.
  Group* group = nullptr;        ///< If not null, the call is made when the group ends.
  void* stream = nullptr;        ///< The GPU's stream that orders the call, if it was given.
  bool staged = false;           ///< It is ordered by a GPU's stream; see runtime/staged.

  std::size_t bytes() const noexcept { return count * size_of(type); }
};
static_assert(std::is_trivially_copyable_v<TransferCall>);

/// Holds a transfer and its progress. It belongs to the owner of the engine from
/// PointToPoint::start() until take_ended() returns it.
struct Transfer {
  TransferCall call;
  TimePoint deadline = TimePoint::max();
  Operation* operation = nullptr;  ///< Null if a blocking call waits for it.
  std::uint64_t called = 0;  ///< When the program called it, in ticks; 0 if it starts at once.
  /// These stand for a transfer that has no record yet, and for one whose record is complete.
  static constexpr std::uint64_t kUnrecorded = ~std::uint64_t{0};
  static constexpr std::uint64_t kEndRecorded = kUnrecorded - 1;
  std::uint64_t recorded = kUnrecorded;  ///< The position of the record that waits for its end.

  bool done = false;
  Received received;  ///< The result of a receive, once it is matched.

  // Members that only the protocol uses.
  int watched = 0;           ///< The peer whose messages it waits for, or kAnySource.
  std::uint32_t id = 0;      ///< The number of the send with which it is matched.
  std::uint64_t key = 0;     ///< What it is found by in a KeyedTable at its stage, if it is in one.
  std::uint64_t posted = 0;  ///< The number of receives that were posted before it.
  std::size_t moved = 0;     ///< The number of bytes that have been sent or received.
  Memory memory;             ///< The buffer of a send that is zero-copy; else it has no address.
  int copy_class = 0;        ///< Of a send; see SendRing::set_copy_class().
  /// Links it in the list of transfers under way, or of those that have ended.
  Link<Transfer> live_link;
  Link<Transfer> stage_link;
};
using LiveTransfers = IntrusiveList<Transfer, &Transfer::live_link>;
using StagedTransfers = IntrusiveList<Transfer, &Transfer::stage_link>;

/// Throws `usage` with a message that names the argument, what was given and what is possible.
void check_transfer(const TransferCall& call, int size);

/// Returns for example "send(8 x f32) to rank 1 with tag 3", for error messages.
std::string describe(const TransferCall& call);

}  // namespace tutti
