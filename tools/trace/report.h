// The report of tutti-trace in words, and what it is made of.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "trace/job.h"

namespace tutti::tools {

/// Says for one rank how often it was the last to enter an operation.
struct Lateness {
  int rank = 0;
  int last = 0;            ///< The number of operations that it entered last.
  std::int64_t total = 0;  ///< The sum of the times by which it came later than the median rank.
  std::int64_t worst = 0;  ///< The largest of these times, and the operation in which it occurred.
  std::uint64_t worst_number = 0;
  bool stands_out = false;  ///< It is a straggler, by the rule in docs/tracing.md.
};

/// The times at which ranks entered the operations whose records at least two ranks have.
struct Stragglers {
  int operations = 0;
  std::vector<Lateness>
      ranks;  ///< The one with the largest total first; only those that were last.
};

/// Looks at operations that began after `since`, in times of the job; at all without it.
Stragglers find_stragglers(const TracedCommunicator& communicator,
                           std::int64_t since = std::numeric_limits<std::int64_t>::min());

/// The first operation number under which ranks called different things.
struct Mismatch {
  std::uint64_t number = 0;
  struct Call {
    std::string call;
    std::vector<int> ranks;
  };
  std::vector<Call> calls;
};
std::optional<Mismatch> find_mismatch(const TracedCommunicator& communicator);

/// A rank that waits for another in an operation that is under way.
struct Wait {
  const TracedCommunicator* communicator = nullptr;
  int from = 0, to = 0;  ///< Ranks of the communicator.
  std::string in;        ///< The operation: "#17 all_reduce(2 x f32, sum)".
  std::int64_t since = 0, for_ns = 0;
};
/// Returns who waits for whom. A rank that has not been asked waits for the ranks that have not
/// come to its operation.
std::vector<Wait> find_waits(const TracedJob& job);
/// Returns the waits that form a cycle, in which each rank waits for the next, or none.
std::vector<Wait> find_cycle(const std::vector<Wait>& waits);

/// Returns a line that says where a rank is: "in #17 all_reduce(2 x f32, sum) for 3.2 s, waits for
/// rank 1".
std::string where_now(const TracedRank& rank, std::int64_t read_at);

/// Returns one block of lines for each process.
std::string list(const std::vector<TracedProcess>& processes);
/// Returns the whole report.
std::string report(const TracedJob& job);

}  // namespace tutti::tools
