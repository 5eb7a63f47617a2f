// Memory that a rank has registered with its peers. Peers know it by numbers, and read and
// write it in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <type_traits>

#include "common/sync.h"

namespace tutti {

/// A position in a rank's registered memory, as messages carry it.
struct Extent {
  std::uint32_t segment = 0;  ///< Counted from 1; 0 if there is none.
  std::uint64_t offset = 0;   ///< An address where the segment is kAllMemory.
};
/// Stands for any memory of the rank's process. Peers have not mapped it, but may have the kernel
/// copy it.
inline constexpr std::uint32_t kAllMemory = ~std::uint32_t{0};
static_assert(std::is_trivially_copyable_v<Extent> && sizeof(Extent) == 16);

struct Segment {
  std::shared_ptr<std::byte> memory;  ///< Its address in this process.
  std::size_t bytes = 0;
};

/// The segments of one rank, as that rank or one of its peers knows them. Thread-safe; the lock is
/// taken only for large messages.
class Segments {
 public:
  /// Adds a segment under a given number; returns false where the number is taken.
  bool add(std::uint32_t number, Segment segment);
  /// Adds a segment under the next free number, which it returns. Called by the rank that registers
  /// it.
  std::uint32_t add(Segment segment);
  void remove(std::uint32_t number) noexcept;

  bool empty() const noexcept { return count_.load(std::memory_order_relaxed) == 0; }

  /// Returns the segment, or one without memory where the number is not known (yet).
  Segment find(std::uint32_t number) const;
  /// Returns where these bytes lie in one of the segments, or none where not all of them lie in
  /// one.
  std::optional<Extent> extent_of(const void* data, std::size_t bytes) const;

 private:
  sync::Atomic<std::size_t> count_{0};
  mutable sync::Mutex mutex_;
  std::map<std::uint32_t, Segment> segments_;  // guarded by mutex_
  std::uint32_t last_ = 0;                     // guarded by mutex_
};

}  // namespace tutti
