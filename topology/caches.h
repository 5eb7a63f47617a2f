// The sizes of a core's caches, and of the rings that suit them. Every start needs these, so they
// are found in microseconds, without hwloc.
#pragma once

#include <cstddef>
#include <filesystem>

namespace tutti {

/// Returns a core's share of the second-level cache, in bytes, or 0 if it cannot be found out. It
/// is read for the machine's first cpu, so that all processes of a machine get the same value
/// wherever they run. `root` is the folder that contains sys/.
std::size_t core_cache_bytes(const std::filesystem::path& root = "/");

/// Returns a core's share of the third-level cache, in bytes and at most 4 MiB, or 0 if it cannot
/// be found out. (A virtual machine reports the whole cache for the few cores that it has.)
std::size_t third_level_bytes(const std::filesystem::path& root = "/");

/// The facts of a machine by which the rings of its ranks are sized.
struct CoreCaches {
  std::size_t cache_bytes = 0;  ///< As core_cache_bytes() returns it.
  int cores = 1;                ///< The number of processors that are online.
  /// The result of third_level_bytes(), if cores read what others have written faster from the
  /// third level than from the other core's second level, and 0 otherwise.
  std::size_t victim_bytes = 0;
};
CoreCaches core_caches();

/// Returns the data bytes of a channel's ring when `ranks` ranks run on a machine. Where
/// `victim_bytes` is 0, this is ring_bytes_of() a core's second-level cache. Otherwise, rings are
/// larger than that cache, so that a message has left it for the third level when it is read: one
/// and a half times its size, divided by the square of the number of ranks on a core. The rings of
/// all ranks of a core to all others together fit in the core's share of the third level.
std::size_t ring_bytes_of(const CoreCaches& machine, int ranks);
/// Returns the same for this machine.
std::size_t default_ring_bytes(int ranks);

/// Returns the data bytes of a channel's ring: 3/32 of a core's cache (192 KiB of 2 MiB), divided
/// by the number of ranks on a core, but at least 96 and at most 768 KiB. A pair of ranks has two
/// rings, which both cores access beside the buffers themselves; all of these should stay in the
/// cache. A cache of unknown size (0) counts as 2 MiB.
std::size_t ring_bytes_of(std::size_t core_cache_bytes, std::size_t ranks_per_core);

}  // namespace tutti
