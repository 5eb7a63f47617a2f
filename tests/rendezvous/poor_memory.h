// Lets allocations of single threads fail.
#pragma once

namespace tutti::test {

/// Allocations of a thread fail only where it sets this.
extern thread_local bool is_poor;

/// Lets an allocation of poor threads fail once `count` others have succeeded, and if `all` is set
/// each that follows it, too.
void fail_allocation(long count, bool all);
/// Lets no more allocation fail. Returns whether one has.
bool stop_failing();

}  // namespace tutti::test
