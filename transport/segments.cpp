#include "transport/segments.h"

#include <cassert>
#include <utility>

namespace tutti {

bool Segments::add(std::uint32_t number, Segment segment) {
  const std::lock_guard lock(mutex_);
  assert(segment.memory != nullptr);
  const bool added = segments_.emplace(number, std::move(segment)).second;
  count_.store(segments_.size(), std::memory_order_relaxed);
  return added;
}

std::uint32_t Segments::add(Segment segment) {
  const std::lock_guard lock(mutex_);
  assert(segment.memory != nullptr && segment.bytes > 0);
  [[maybe_unused]] const bool added = segments_.emplace(++last_, std::move(segment)).second;
  assert(added && "a number is given to one segment");
  count_.store(segments_.size(), std::memory_order_relaxed);
  return last_;
}

void Segments::remove(std::uint32_t number) noexcept {
  const std::lock_guard lock(mutex_);
  segments_.erase(number);
  count_.store(segments_.size(), std::memory_order_relaxed);
}

Segment Segments::find(std::uint32_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = segments_.find(number);
  return found == segments_.end() ? Segment{} : found->second;
}

std::optional<Extent> Segments::extent_of(const void* data, std::size_t bytes) const {
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  const std::lock_guard lock(mutex_);
  for (const auto& [number, segment] : segments_) {
    const auto begin = reinterpret_cast<std::uintptr_t>(segment.memory.get());
    if (at >= begin && bytes <= segment.bytes && at - begin <= segment.bytes - bytes)
      return Extent{number, at - begin};
  }
  return std::nullopt;
}

}  // namespace tutti
