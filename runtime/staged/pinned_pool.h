// Pinned host memory, which a GPU's copy engines read and write, kept from call to call.
#pragma once

#include <cstddef>
#include <vector>

#include "common/sync.h"
#include "devices/gpu_driver.h"

namespace tutti {

/// Hands out blocks of pinned memory. Blocks are taken by the thread that makes calls, while the
/// context of a stream is current, and may be given back by any thread, even after close(): then
/// they are freed by the next pool that closes, or finds no memory, because the thread that gives
/// them back may not call the driver, whose frees may wait for all that is on the GPU's streams.
class PinnedPool {
 public:
  struct Block {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    cuda::Context context = nullptr;  ///< The context in which it was allocated.
  };

  explicit PinnedPool(const cuda::Driver& driver) : driver_(driver) {}
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  /// Returns a block of at least `bytes` bytes, aligned to a page. `context` is the current one.
  /// Throws `unavailable` if the driver has no such memory.
  Block take(std::size_t bytes, cuda::Context context);
  void give_back(const Block& block) noexcept;
  /// Frees the blocks. From now on, the driver is not used any more.
  void close() noexcept;
  /// Returns the bytes of all blocks. Any thread may call it.
  std::size_t memory_bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  void free_all(sync::Mutex& mutex, std::vector<Block>& blocks) noexcept;
  void free(const Block& block) const noexcept;

  const cuda::Driver& driver_;
  sync::Mutex mutex_;
  std::vector<Block> unused_;  // It is guarded by mutex_, and has room for every block.
  bool closed_ = false;        // It is guarded by mutex_.
  std::size_t blocks_ = 0;     // This is the number of all blocks; it is guarded by mutex_.
  sync::Atomic<std::size_t> bytes_{0};
};

}  // namespace tutti
