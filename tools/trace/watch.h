// Stragglers by rank and by link, while a job runs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace tutti::tools {

/// Compares what processes have recorded with what they had recorded before.
class Watch {
 public:
  /// Returns a table of what happened since the previous call, with a line for each rank that was
  /// the last to enter operations, and one for each link over which a rank has waited long.
  std::string look(const std::vector<TracedProcess>& processes);

 private:
  std::map<std::uint64_t, std::int64_t> seen_;  // by communicator: the time of the last look
};

}  // namespace tutti::tools
