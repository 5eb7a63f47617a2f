#include "allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::uint64_t> count{0}, total_bytes{0};
thread_local long left = -1;  // the number of allocations before the one that fails; -1: none fails

void note(std::size_t bytes) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  total_bytes.fetch_add(bytes, std::memory_order_relaxed);
}
}  // namespace

std::uint64_t tutti::test::allocations() noexcept { return count.load(std::memory_order_relaxed); }
std::uint64_t tutti::test::allocated_bytes() noexcept {
  return total_bytes.load(std::memory_order_relaxed);
}

void tutti::test::fail_allocation(long number) noexcept { left = number; }

#ifdef TUTTI_TEST_SANITIZED

// The sanitizers call these hooks for each allocation.
extern "C" void __sanitizer_malloc_hook(const volatile void*, std::size_t bytes) { note(bytes); }
extern "C" void __sanitizer_free_hook(const volatile void*) {}

#else

namespace {

void* counted(std::size_t bytes) noexcept {
  note(bytes);
  if (left >= 0 && left-- == 0) return nullptr;
  return std::malloc(bytes);
}
void* counted_aligned(std::size_t bytes, std::align_val_t alignment) noexcept {
  note(bytes);
  const auto unit = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
}
void* or_thrown(void* memory) {
  if (memory != nullptr) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return or_thrown(counted(bytes)); }
void* operator new[](std::size_t bytes) { return or_thrown(counted(bytes)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return or_thrown(counted_aligned(bytes, alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

#endif
