// The messages of all errors that keep sends and receives from ending.
#pragma once

#include <optional>
#include <string>

#include <tutti/error.hpp>

#include "common/clock.h"
#include "runtime/p2p/point_to_point.h"
#include "transport/channel.h"

namespace tutti {

/// Holds what the diagnosis of transfers reads.
struct TransferSituation {
  Transport& transport;
  const PointToPoint& messages;
  int rank;
  int size;
  Nanoseconds timeout;  ///< The limit that the settings give to transfers.
};

/// The reason why a transfer under way cannot end.
struct TransferVerdict {
  const Transfer* transfer;
  Error error;
};

/// Returns whether all ranks for which transfers wait are alive: then only a deadline ends one of
/// them. Its time does not depend on the number of transfers.
bool awaited_ranks_are_alive(const TransferSituation& at);

/// Returns a transfer whose peer has failed or ended, or whose deadline has passed by `now`; none
/// if all can go on waiting. The caller advances the transfers once more before it throws the
/// error.
std::optional<TransferVerdict> diagnose_transfers(const TransferSituation& at, TimePoint now);

/// Describes what each transfer waits for; the oldest has been under way for `age`.
std::string describe_stall(const TransferSituation& at, Nanoseconds age);

}  // namespace tutti
