// Counts the mutexes that are locked.
#pragma once

#include <cstdint>

namespace tutti::test {

/// Returns how many mutexes the calling thread has locked since it started; try_lock does not
/// count.
std::uint64_t locks_of_this_thread() noexcept;
/// Returns false under ThreadSanitizer, which must see the locks itself.
bool counts_locks() noexcept;

}  // namespace tutti::test
