#include "runtime/staged/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "devices/gpu.h"

namespace tutti {
namespace {

constexpr std::size_t kLeastPinnedBlock = std::size_t{64} << 10;

/// Blocks that were given back to pools that were closed before. They belong to the process.
struct LeftBlocks {
  sync::Mutex mutex;
  std::vector<PinnedPool::Block> blocks;  // It has room for all that are expected.
  std::size_t expected = 0;
};

LeftBlocks& left_blocks() {
  static LeftBlocks& left = *new LeftBlocks();
  return left;
}

}  // namespace

PinnedPool::Block PinnedPool::take(std::size_t bytes, cuda::Context context) {
  const std::size_t wanted = std::max(std::bit_ceil(bytes), kLeastPinnedBlock);
  {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const Block& block) { return block.bytes == wanted; };
    const auto found = std::find_if(unused_.begin(), unused_.end(), fits);
    if (found != unused_.end()) {
      const Block block = *found;
      *found = unused_.back();
      unused_.pop_back();
      return block;
    }
    unused_.reserve(blocks_ + 1);  // So that giving a block back never allocates.
  }
  const OutsideCapture outside_capture(driver_);
  Block block{nullptr, wanted, context};
  void* memory = nullptr;
  cuda::Result result = driver_.allocate_host(&memory, wanted, cuda::kHostPortable);
  if (result != cuda::kSuccess) {
    free_all(mutex_, unused_);
    free_all(left_blocks().mutex, left_blocks().blocks);
    result = driver_.allocate_host(&memory, wanted, cuda::kHostPortable);
  }
  cuda::check(driver_, result, "pinned memory for a call on a GPU's buffers");
  block.memory = static_cast<std::byte*>(memory);
  {
    const std::lock_guard lock(mutex_);
    ++blocks_;
  }
  bytes_.fetch_add(wanted, std::memory_order_relaxed);
  return block;
}

void PinnedPool::give_back(const Block& block) noexcept {
  const std::lock_guard lock(mutex_);
  if (closed_) {
    LeftBlocks& left = left_blocks();
    const std::lock_guard adding(left.mutex);
    --left.expected;
    return left.blocks.push_back(block);
  }
  assert(unused_.size() < unused_.capacity());
  unused_.push_back(block);
}

void PinnedPool::close() noexcept {
  const OutsideCapture outside_capture(driver_);
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    LeftBlocks& left = left_blocks();
    const std::lock_guard adding(left.mutex);
    left.expected += blocks_ - unused_.size();
    left.blocks.reserve(left.blocks.size() + left.expected);
  }
  free_all(mutex_, unused_);
  free_all(left_blocks().mutex, left_blocks().blocks);
}

// A context that the program has destroyed took its memory with it.
void PinnedPool::free(const Block& block) const noexcept {
  if (driver_.push_context(block.context) != cuda::kSuccess) return;
  driver_.free_host(block.memory);
  cuda::Context popped = nullptr;
  driver_.pop_context(&popped);
}

// No lock is held while the driver is called, which may wait for a thread that gives a block back.
void PinnedPool::free_all(sync::Mutex& mutex, std::vector<Block>& blocks) noexcept {
  while (true) {
    Block block;
    {
      const std::lock_guard lock(mutex);
      if (blocks.empty()) return;
      block = blocks.back();
      blocks.pop_back();
      if (&blocks == &unused_) --blocks_;
    }
    free(block);
    if (&blocks == &unused_) bytes_.fetch_sub(block.bytes, std::memory_order_relaxed);
  }
}

}  // namespace tutti
