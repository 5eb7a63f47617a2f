#include "runtime/staged/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace tutti {
namespace {

constexpr std::size_t kLeastPinnedBlock = std::size_t{64} << 10;

}  // namespace

// In a forked child, calls that were under way keep their memory, which the driver knows there no
// more.
PinnedPool::~PinnedPool() { free_unused(); }

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
  Block block{nullptr, wanted, context};
  void* memory = nullptr;
  cuda::Result result = driver_.allocate_host(&memory, wanted, cuda::kHostPortable);
  if (result != cuda::kSuccess) {
    free_unused();
    result = driver_.allocate_host(&memory, wanted, cuda::kHostPortable);
  }
  cuda::check(driver_, result, "pinned memory for a call on a GPU's buffers");
  block.memory = static_cast<std::byte*>(memory);
  ++blocks_;
  bytes_.fetch_add(wanted, std::memory_order_relaxed);
  return block;
}

void PinnedPool::give_back(const Block& block) noexcept {
  const std::lock_guard lock(mutex_);
  assert(unused_.size() < unused_.capacity());
  unused_.push_back(block);
}

void PinnedPool::free_unused() noexcept {
  const std::lock_guard lock(mutex_);
  for (const Block& block : unused_) {
    // A context that the program has destroyed took its memory with it.
    if (driver_.push_context(block.context) == cuda::kSuccess) {
      driver_.free_host(block.memory);
      cuda::Context popped = nullptr;
      driver_.pop_context(&popped);
    }
    --blocks_;
    bytes_.fetch_sub(block.bytes, std::memory_order_relaxed);
  }
  unused_.clear();
}

}  // namespace tutti
