// How many files this process may have open.
#pragma once

#include <cstddef>
#include <string>

namespace tutti {

/// Where fewer than `wanted` descriptors are allowed, raises the soft limit to the hard one, for
/// the whole process and what it starts from then on. Systems keep the soft one at 1024 for
/// programs that use select(2), which are not in danger before they have so many open. Returns how
/// many are allowed now.
std::size_t allow_descriptors(std::size_t wanted) noexcept;

/// As allow_descriptors(), and throws `unavailable` where not even `least` are allowed: those that
/// `who` ("rank 3 of 600") needs for `what` ("to join over shared memory").
void need_descriptors(std::size_t wanted, std::size_t least, const std::string& who,
                      const std::string& what);

}  // namespace tutti
