// Of the caches, what every start needs to know: found in microseconds, without hwloc.
#pragma once

#include <cstddef>
#include <filesystem>

namespace tutti {

/// A core's share of the second-level cache, in bytes, of the machine's first cpu, so that all
/// processes of a machine find the same wherever they run. 0: nobody tells. `root` holds sys/.
std::size_t core_cache_bytes(const std::filesystem::path& root = "/");

/// Data bytes of a channel's ring for `ranks` on this machine: ring_bytes_of() its caches and
/// cores.
std::size_t default_ring_bytes(int ranks);

/// Data bytes of a channel's ring: 3/32 of a core's cache (192 KiB of 2 MiB), shared by the ranks
/// of a core, within 96 to 768 KiB. A pair of ranks has two rings that both cores touch, beside the
/// buffers themselves: together they are to stay in the cache. Unknown caches (0) count as 2 MiB.
std::size_t ring_bytes_of(std::size_t core_cache_bytes, std::size_t ranks_per_core);

}  // namespace tutti
