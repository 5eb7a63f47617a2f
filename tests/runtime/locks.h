// Counts the mutexes that are locked.
#pragma once

#include <cstdint>

namespace tutti::test {

/// By the calling thread, since it started; try_lock does not count.
std::uint64_t locks_of_this_thread() noexcept;
/// False where ThreadSanitizer must see the locks itself.
bool counts_locks() noexcept;

}  // namespace tutti::test
