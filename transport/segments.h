// Memory that a rank lends its peers, known by numbers: they read and write it where it lies.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace tutti {

/// A place in a rank's lent memory, as it travels in messages.
struct Extent {
  std::uint32_t segment = 0;  ///< Counted from 1; 0: none.
  std::uint64_t offset = 0;   ///< In kAllMemory: an address.
};
/// Any memory of the rank's process: peers do not see it, but may have the kernel copy it.
inline constexpr std::uint32_t kAllMemory = ~std::uint32_t{0};

struct Segment {
  std::shared_ptr<std::byte> memory;  ///< As this process sees it.
  std::size_t bytes = 0;
};

/// Of one rank, as it or a peer of its knows them. Thread-safe; the lock is taken for large
/// messages alone.
class Segments {
 public:
  /// False: the number is taken.
  bool add(std::uint32_t number, Segment segment);
  /// The next number, for the rank that lends.
  std::uint32_t add(Segment segment);
  void remove(std::uint32_t number) noexcept;

  bool empty() const noexcept { return count_.load(std::memory_order_relaxed) == 0; }

  /// None: it is not known (yet).
  Segment find(std::uint32_t number) const;
  /// Where these bytes are lent; none: they are not, or not all of them.
  std::optional<Extent> extent_of(const void* data, std::size_t bytes) const;

 private:
  std::atomic<std::size_t> count_{0};
  mutable std::mutex mutex_;
  std::map<std::uint32_t, Segment> segments_;  // guarded by mutex_
  std::uint32_t last_ = 0;                     // guarded by mutex_
};

}  // namespace tutti
