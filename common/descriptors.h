// How many files this process may have open.
#pragma once

#include <cstddef>
#include <string>

namespace tutti {

/// Raises the soft limit of open files to the hard one where it is below `wanted`, for the whole
/// process and the programs that it starts from then on. Returns how many are allowed now. (Systems
/// keep the soft limit at 1024 for programs that use select(2), which fail only once they have more
/// files open.) Thread-safe.
std::size_t allow_descriptors(std::size_t wanted) noexcept;

/// Calls allow_descriptors(), and throws `unavailable` where fewer than `least` are allowed: the
/// number that `who` ("rank 3 of 600") needs for `what` ("to join over shared memory").
void need_descriptors(std::size_t wanted, std::size_t least, const std::string& who,
                      const std::string& what);

}  // namespace tutti
