// The ranks of one or more jobs, put together from the traces of their processes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace tutti::tools {

/// One communicator, with what its ranks have recorded.
struct TracedCommunicator {
  struct Member {
    const TracedProcess* process = nullptr;  ///< Null if no trace has this rank.
    const TracedRank* trace = nullptr;
    std::int64_t ahead = 0;  ///< What is added to its times to get those of the job.

    std::int64_t job_time(std::int64_t own) const noexcept { return own + ahead; }
  };

  std::uint64_t identity = 0;
  std::string name;
  std::vector<Member> members;  ///< Indexed by rank.

  std::vector<int> missing() const;
};

/// Says how well the clock of a machine is known in comparison with the first machine's.
struct ClockOffset {
  std::string host;
  std::int64_t ahead = 0;  ///< What is added to its times to get those of the job.
  /// The error is at most this; none if the offset is that of the machines' calendars, about whose
  /// error nothing is known.
  std::optional<std::int64_t> exact_to;
};

/// Times of the job are nanoseconds since 1970, by the calendar of the first process's machine.
struct TracedJob {
  std::vector<TracedCommunicator> communicators;  ///< The largest first.
  std::map<std::string, ClockOffset> clocks;      ///< By machine.
};

/// Puts together the ranks of each communicator. `processes` outlives the result. The clocks of the
/// machines are compared by operations in which no rank can end before all have begun.
TracedJob merge(const std::vector<TracedProcess>& processes);

/// Returns whether no rank can end the operation before all ranks have begun it.
bool joins_all(const TracedOperation& operation);

}  // namespace tutti::tools
