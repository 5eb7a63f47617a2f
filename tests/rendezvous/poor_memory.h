// Lets allocations of single threads fail.
#pragma once

namespace tutti::test {

/// Allocations of a thread fail only where it sets this.
extern thread_local bool is_poor;

/// Of the allocations of poor threads, the one after `count` others fails, and if `all` is set each
/// that follows it.
void fail_allocation(long count, bool all);
/// Lets no more allocation fail. Returns whether one has.
bool stop_failing();

}  // namespace tutti::test
