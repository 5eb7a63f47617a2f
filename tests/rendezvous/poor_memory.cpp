#include "poor_memory.h"

#include <atomic>
#include <cstdlib>
#include <new>

thread_local bool tutti::test::is_poor = false;

namespace {

std::atomic<long> left{-1};  // the number of allocations before the one that fails; -1: none fails
std::atomic<bool> all_fail{false}, one_failed{false};

[[maybe_unused]] bool fails() noexcept {
  if (!tutti::test::is_poor || left < 0) return false;
  if (left > 0) {
    --left;
    return false;
  }
  if (!all_fail) left = -1;
  return one_failed = true;
}

}  // namespace

void tutti::test::fail_allocation(long count, bool all) {
  one_failed = false;
  all_fail = all;
  left = count;
}

bool tutti::test::stop_failing() {
  left = -1;
  return one_failed;
}

#ifndef TUTTI_TEST_CANNOT_BE_POOR
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new(std::size_t bytes) {
  void* const memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif
