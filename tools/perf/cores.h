// Finds the cores that this process may use, and binds threads to them.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tutti::perf {

/// Returns the logical processors on which this thread may run. One processor of each physical core
/// comes first, so that the first n share as little as possible.
[[nodiscard]] std::vector<int> allowed_cores();

/// Binds this thread, and threads that it starts, to these cores, or to one core.
void pin(std::span<const int> cores);
inline void pin(int core) { pin(std::span(&core, 1)); }

/// Returns for example "Intel(R) Xeon(R) Processor @ 2.50GHz", or "cpu" if the system does not say.
[[nodiscard]] std::string processor_name();

}  // namespace tutti::perf
