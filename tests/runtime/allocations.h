// Counts the allocations of this process.
#pragma once

#include <cstdint>
#include <span>

#include <tutti/communicator.hpp>

namespace tutti::test {

/// Since the process started, of all threads.
std::uint64_t allocations() noexcept;
/// Their bytes, with those that have been given back.
std::uint64_t allocated_bytes() noexcept;

/// What 300 calls of `round` allocate on all ranks in the steady state. What is made once
/// (programs, operations, sleepers, a slot for each message that was under way at once, of which
/// there are more the further one rank runs ahead) is made in the stretches before: as many as it
/// takes, at most twenty. What each call allocates is in every stretch.
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
