// Counts the allocations of this process.
#pragma once

#include <cstdint>

namespace tutti::test {

/// Since the process started, of all threads.
std::uint64_t allocations() noexcept;

}  // namespace tutti::test
