// The limit on the number of files that this process may have open, and descriptors for waiting.
#pragma once

#include <cstddef>
#include <string>

#include "common/fd.h"

namespace tutti {

/// Raises the soft limit of open files to the hard limit, but not beyond 2^20 unless more are
/// wanted, if it is below `wanted`. This holds for the whole process and the programs that it
/// starts from then on. Returns the limit that then holds. (Systems keep the soft limit at 1024 for
/// programs that use select(2), which fail only once they have more files open.) Thread-safe.
std::size_t allow_descriptors(std::size_t wanted) noexcept;

/// Calls allow_descriptors(wanted), and throws `unavailable` if fewer than `least` descriptors are
/// allowed. `who` ("rank 3 of 600") and `what` ("to join over shared memory") say in the error who
/// needs them and for what.
void need_descriptors(std::size_t wanted, std::size_t least, const std::string& who,
                      const std::string& what);

/// Makes an epoll descriptor. Throws `unavailable` where the process has no descriptor left.
Fd make_epoll();

}  // namespace tutti
