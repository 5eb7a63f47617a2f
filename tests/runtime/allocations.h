// Counts the allocations of this process.
#pragma once

#include <cstdint>
#include <span>

#include <tutti/communicator.hpp>

namespace tutti::test {

/// Returns the number of allocations of all threads since the process started.
std::uint64_t allocations() noexcept;
/// Returns the bytes of these allocations, including those that have been freed.
std::uint64_t allocated_bytes() noexcept;

// The sanitizers' runtimes have an operator new of their own.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TUTTI_TEST_SANITIZED
#endif
#endif
#ifdef TUTTI_TEST_SANITIZED
inline constexpr bool kCanBePoor = false;
#else
inline constexpr bool kCanBePoor = true;
#endif
/// An allocation of this thread fails once `number` others have succeeded; below 0: none does. It
/// has an effect where kCanBePoor is true.
void fail_allocation(long number) noexcept;

/// Returns the number of allocations that 300 calls of `round` make on all ranks in the steady
/// state. Objects that are made once (programs, operations, sleepers, a slot for each message that
/// is under way at a time, whose number grows with the distance by which one rank runs ahead) are
/// made in earlier stretches of 300 calls, of which there are at most twenty. An allocation that
/// each call makes is in every stretch.
template <typename Round>
std::uint64_t steady_state_allocations(Communicator& comm, Round&& round) {
  std::uint64_t allocated = 0;
  for (int stretch = 0; stretch < 20; ++stretch) {
    comm.barrier();
    const std::uint64_t before = allocations();
    comm.barrier();
    for (int k = 0; k < 300; ++k) round();
    comm.barrier();
    allocated = allocations() - before;
    comm.barrier();
    comm.broadcast(std::span(&allocated, 1), 0);
    if (allocated == 0) break;
  }
  return allocated;
}

}  // namespace tutti::test
