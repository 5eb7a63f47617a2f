// Pinned host memory, which a GPU's copy engines read and write, kept from call to call.
#pragma once

#include <cstddef>
#include <vector>

#include "common/sync.h"
#include "devices/gpu_driver.h"

namespace tutti {

/// Hands out blocks of pinned memory. Blocks are taken by the thread that makes calls, while the
/// context of a stream is current, and may be given back by any thread.
class PinnedPool {
 public:
  struct Block {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    cuda::Context context = nullptr;  ///< The context in which it was allocated.
  };

  explicit PinnedPool(const cuda::Driver& driver) : driver_(driver) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  /// Returns a block of at least `bytes` bytes, aligned to a page. `context` is the current one.
  /// Throws `unavailable` if the driver has no such memory.
  Block take(std::size_t bytes, cuda::Context context);
  void give_back(const Block& block) noexcept;
  /// Returns the bytes of all blocks. Any thread may call it.
  std::size_t memory_bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  void free_unused() noexcept;

  const cuda::Driver& driver_;
  sync::Mutex mutex_;
  std::vector<Block> unused_;  // It is guarded by mutex_, and has room for every block.
  std::size_t blocks_ = 0;     // This is the number of all blocks, for the calling thread.
  sync::Atomic<std::size_t> bytes_{0};
};

}  // namespace tutti
