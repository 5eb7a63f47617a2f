// This is what tutti-trace knows: the operations of the ranks of a job, as plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/diagnosis/record.h"

namespace tutti::tools {

/// One operation of one rank, or a run of short calls of the same kind under consecutive numbers,
/// of which the first alone has times. Times are nanoseconds of the steady clock of the rank's
/// machine.
struct TracedOperation {
  ReadRecord record;
  std::int64_t called = 0;
  std::int64_t began = 0;
  /// The time at which it ended. It is that of the reading while it is under way, and the beginning
  /// plus kSoonNs where it ended so soon that its end was not recorded.
  std::int64_t ended = 0;

  static constexpr std::int64_t kSoonNs = 2000;

  std::uint64_t calls() const noexcept {
    return record.ended == Record::kSoon ? std::uint64_t{1} + record.more : 1;
  }
  std::uint64_t last_number() const noexcept { return record.number + calls() - 1; }
  bool under_way() const noexcept { return record.ended == Record::kUnderWay; }
  bool is_transfer() const noexcept { return (record.kinds & 0xff) >= Record::kSend; }
  bool is_send() const noexcept { return (record.kinds & 0xff) == Record::kSend; }
};

/// The operations of one rank in one communicator, the oldest first.
struct TracedRank {
  std::uint64_t identity = 0;  ///< That of the communicator.
  std::string name;
  int rank = 0, size = 1, world_rank = 0;
  RingState state = RingState::open;
  std::uint32_t failure_kind = 0;
  std::string failure;
  StoreCall store_call = StoreCall::none;  ///< The call in which it is; not among `operations`.
  std::int64_t store_call_began = 0;
  int store_call_waits_for = -1;  ///< As in RingHead.
  std::vector<TracedOperation> operations;

  /// Returns the last collective, or null if there is none.
  const TracedOperation* last_collective() const noexcept;
};

/// One process, as it is or as it was when its trace was dumped.
struct TracedProcess {
  std::string source;  ///< "process 123" or the path of the dump.
  std::int64_t pid = 0;
  std::string machine, host, command;
  bool stopped = false;       ///< By a signal.
  std::int64_t read_at = 0;   ///< By the machine's steady clock, in nanoseconds.
  std::int64_t calendar = 0;  ///< What its calendar is ahead of its steady clock, in nanoseconds.
  std::vector<TracedRank> ranks;
};

/// Returns the call, for example "all_reduce(1024 x f32, sum)" or "send(8 x f32) to rank 1 with tag
/// 3". Any record is accepted, since it may come from a file.
std::string describe(const TracedOperation& operation);
/// Returns "shrink", "grow" or "agree".
std::string describe(StoreCall call);
/// Returns the name of the algorithm of a collective.
std::string algorithm_of(const TracedOperation& operation);
/// Returns for example "ok", "under way" or "timeout".
std::string outcome_of(const TracedOperation& operation);
/// Returns for example "3.2 s", "12 ms" or "4 us".
std::string show_duration(std::int64_t nanoseconds);

}  // namespace tutti::tools
