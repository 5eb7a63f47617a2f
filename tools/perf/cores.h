// Which cores this process may use, and staying on one.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tutti::perf {

/// The logical processors that this thread may run on. One of each physical core comes first, so
/// that the first n share as little as possible.
[[nodiscard]] std::vector<int> allowed_cores();

/// Keeps this thread, and threads that it starts, on these cores, or on one.
void pin(std::span<const int> cores);
inline void pin(int core) { pin(std::span(&core, 1)); }

/// "Intel(R) Xeon(R) Processor @ 2.50GHz"; "cpu" where the system does not say.
[[nodiscard]] std::string processor_name();

}  // namespace tutti::perf
