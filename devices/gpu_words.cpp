#include "devices/gpu_words.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <mutex>

namespace tutti {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

GpuWords& GpuWords::of_process() {
  static GpuWords& words = *new GpuWords();
  return words;
}

GpuWords::Words GpuWords::take(const GpuDevice& gpu) {
  const std::uint64_t context = gpu.context_number();
  {
    const std::lock_guard lock(mutex_);
    // A GPU has one primary context: words of another one went with it.
    std::erase_if(unused_, [&](const Unused& each) {
      return each.ordinal == gpu.ordinal() && each.context != context;
    });
    const auto found = std::find_if(unused_.begin(), unused_.end(),
                                    [&](const Unused& each) { return each.context == context; });
    if (found != unused_.end()) {
      const Words words = found->words;
      *found = unused_.back();
      unused_.pop_back();
      return words;
    }
    made_ += kPage / kBytes;
    unused_.reserve(made_);
  }
  // No lock is held: the driver may wait for a thread that gives words back.
  void* page = nullptr;
  cuda::check(gpu.driver(),
              gpu.driver().allocate_host(&page, kPage, cuda::kHostPortable | cuda::kHostMapped),
              "pinned memory");
  std::memset(page, 0, kPage);
  auto* const memory = static_cast<std::byte*>(page);
  const std::lock_guard lock(mutex_);
  for (std::size_t offset = kBytes; offset < kPage; offset += kBytes)
    unused_.push_back({{memory + offset, 0}, gpu.ordinal(), context});
  return {memory, 0};
}

void GpuWords::give_back(const GpuDevice& gpu, const Words& words) noexcept {
  const std::lock_guard lock(mutex_);
  assert(unused_.size() < unused_.capacity());
  unused_.push_back({words, gpu.ordinal(), gpu.context_number()});
}

}  // namespace tutti
