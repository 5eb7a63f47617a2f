// Counts the allocations of this process.
#pragma once

#include <cstdint>

#include <tutti/communicator.hpp>

namespace tutti::test {

/// Since the process started, of all threads.
std::uint64_t allocations() noexcept;

/// What `round` allocates on all ranks in its steady state: a few rounds bring everything that is
/// made once, programs, rings, operations, sleepers.
template <typename Round>
std::uint64_t steady_state_allocations(Communicator& comm, Round&& round) {
  for (int k = 0; k < 300; ++k) round();
  comm.barrier();
  const std::uint64_t before = allocations();
  comm.barrier();
  for (int k = 0; k < 300; ++k) round();
  comm.barrier();
  const std::uint64_t allocated = allocations() - before;
  comm.barrier();
  return allocated;
}

}  // namespace tutti::test
