// Lets allocations of single threads fail.
#pragma once

namespace tutti::test {

// ThreadSanitizer's runtime defines operator new, and does not let a program replace it.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TUTTI_TEST_CANNOT_BE_POOR
#endif
#endif
#ifdef TUTTI_TEST_CANNOT_BE_POOR
inline constexpr bool kCanBePoor = false;
#else
inline constexpr bool kCanBePoor = true;
#endif

/// Allocations of a thread fail only where it sets this.
extern thread_local bool is_poor;

/// Lets an allocation of poor threads fail once `count` others have succeeded, and if `all` is set
/// each that follows it, too.
void fail_allocation(long count, bool all);
/// Lets no more allocation fail. Returns whether one has.
bool stop_failing();

}  // namespace tutti::test
