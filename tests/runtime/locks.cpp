#include "locks.h"

#include <dlfcn.h>
#include <pthread.h>

namespace {
thread_local std::uint64_t count = 0;
}  // namespace

std::uint64_t tutti::test::locks_of_this_thread() noexcept { return count; }

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

#ifdef SANITIZED

bool tutti::test::counts_locks() noexcept { return false; }

#else

bool tutti::test::counts_locks() noexcept { return true; }

// Replaces the function of the C library, which it calls.
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  using Lock = int (*)(pthread_mutex_t*);
  static const auto real = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  ++count;
  return real(mutex);
}

#endif
