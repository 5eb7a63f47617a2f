#include "topology/caches.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <string>

#include "common/cpus.h"
#include "common/text.h"
#include "topology/first_line.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Rings of 96 to 768 KiB were measured. With 2 MiB of cache per core, 192 KiB was best from 256 KiB
// to 64 MiB, with 2 ranks on 2 cores and with 4 (docs/performance.md). The bounds are those of that
// measurement.
constexpr std::size_t kMeasuredCache = 2 << 20;
constexpr std::size_t kLeastRingShare = 96 << 10, kMostRingShare = 768 << 10, kShareGrain = 4096;
static_assert(kLeastRingShare % kShareGrain == 0 && kMostRingShare % kShareGrain == 0 &&
              kLeastRingShare < kMostRingShare);
static_assert(kMeasuredCache / 32 * 3 == 192 << 10);

// A third-level cache of 32 MiB that eight cores share, as in the processors that were measured.
constexpr std::size_t kMostThirdLevelShare = 4 << 20;

// AMD's processors have a third level that is filled with what leaves the second level. With 1 MiB
// of second-level cache, rings of 1.5 MiB are 1.3 to 3.6 times as fast as rings of 96 KiB from
// 256 KiB on, between 2 ranks on 2 cores (docs/performance.md, "AMD's processors").
bool third_level_is_faster() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

/// Parses a size such as "2048K". Returns 0 for anything else.
std::size_t parse_cache_size(std::string_view text) {
  if (!text.ends_with('K')) return 0;
  return parse_number<std::size_t>(text.substr(0, text.size() - 1)).value_or(0) << 10;
}

}  // namespace

std::size_t third_level_bytes(const fs::path& root) {
  const fs::path cache = root / "sys/devices/system/cpu/cpu0/cache/index3";
  if (first_line(cache / "level") != "3") return 0;
  const std::size_t bytes = parse_cache_size(first_line(cache / "size"));
  const Cpus sharing = parse_cpus(first_line(cache / "shared_cpu_list")).value_or(Cpus());
  return std::min(bytes / std::max<std::size_t>(sharing.size(), 1), kMostThirdLevelShare);
}

std::size_t core_cache_bytes(const fs::path& root) {
  const fs::path cpu = root / "sys/devices/system/cpu/cpu0";
  for (const int index : {2, 1, 3}) {  // usually preceded by two caches of the first level
    const fs::path cache = cpu / "cache" / ("index" + std::to_string(index));
    if (first_line(cache / "level") != "2") continue;
    const std::size_t bytes = parse_cache_size(first_line(cache / "size"));
    const Cpus sharing = parse_cpus(first_line(cache / "shared_cpu_list")).value_or(Cpus());
    if (sharing.size() <= 1) return bytes;
    const auto threads = parse_cpus(first_line(cpu / "topology/thread_siblings_list"));
    const std::size_t of_core = intersect(threads.value_or(Cpus()), sharing).size();
    return bytes / sharing.size() * std::max<std::size_t>(of_core, 1);
  }
  return static_cast<std::size_t>(std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE)));
}

CoreCaches core_caches() {
  return {core_cache_bytes(), static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))),
          third_level_is_faster() ? third_level_bytes() : 0};
}

std::size_t ring_bytes_of(const CoreCaches& machine, int ranks) {
  assert(machine.cores > 0 && ranks > 0);
  const int on_core = (ranks - 1) / machine.cores + 1;
  const auto ranks_per_core = static_cast<std::size_t>(on_core);
  const auto peers = static_cast<std::size_t>(std::max(ranks - 1, 1));
  const std::size_t in_second = ring_bytes_of(machine.cache_bytes, ranks_per_core);
  const std::size_t beyond_second = machine.cache_bytes / 2 * 3 / ranks_per_core / ranks_per_core;
  const std::size_t in_third = machine.victim_bytes / ranks_per_core / peers;
  return std::max(in_second, std::min(beyond_second, in_third) / kShareGrain * kShareGrain);
}

std::size_t default_ring_bytes(int ranks) { return ring_bytes_of(core_caches(), ranks); }

std::size_t ring_bytes_of(std::size_t core_cache_bytes, std::size_t ranks_per_core) {
  assert(ranks_per_core > 0);
  const std::size_t cache = core_cache_bytes != 0 ? core_cache_bytes : kMeasuredCache;
  const std::size_t share = cache / 32 * 3 / ranks_per_core;
  return std::clamp(share / kShareGrain * kShareGrain, kLeastRingShare, kMostRingShare);
}

}  // namespace tutti
