// What keeps sends and receives from ending: the words of every error that says so.
#pragma once

#include <optional>
#include <string>

#include <tutti/error.hpp>

#include "common/clock.h"
#include "runtime/p2p/point_to_point.h"
#include "transport/channel.h"

namespace tutti {

/// Where transfers are looked at.
struct TransferSituation {
  Transport& transport;
  const PointToPoint& messages;
  int rank;
  int size;
};

/// Why a transfer under way cannot end.
struct TransferVerdict {
  const Transfer* transfer;
  Error error;
};

/// A transfer whose peer has failed or gone, or whose deadline has passed by `now`; none: go on
/// waiting. The caller advances once more before it believes it.
std::optional<TransferVerdict> diagnose_transfers(const TransferSituation& at, TimePoint now);

/// Of transfers of which the oldest has been under way for `age`: what each waits for.
std::string describe_stall(const TransferSituation& at, Nanoseconds age);

}  // namespace tutti
