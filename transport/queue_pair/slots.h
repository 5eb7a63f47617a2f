// Owns the memory of a connection's slots, and other memory with which a device works.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cstddef>
#include <new>

#include "transport/queue_pair/frame.h"

namespace tutti::qp {

/// Owns pages of which a forked child gets no copy: a device would otherwise go on with pages that
/// belong to the child after the parent has written to them, on kernels before 5.12.
class Pages {
 public:
  /// Throws std::bad_alloc.
  explicit Pages(std::size_t bytes)
      : bytes_(bytes),
        memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    madvise(memory_, bytes_, MADV_DONTFORK);
  }
  // In a forked child, other memory may be there.
  ~Pages() {
    if (getpid() == owner_) munmap(memory_, bytes_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* data() const noexcept { return static_cast<std::byte*>(memory_); }

 private:
  const std::size_t bytes_;
  void* const memory_;
  const pid_t owner_ = getpid();
};

/// Owns memory for slots.
class Slots {
 public:
  /// Throws std::bad_alloc.
  explicit Slots(std::uint32_t count) : count_(count), pages_(count * kSlotBytes) {}

  std::size_t bytes() const noexcept { return count_ * kSlotBytes; }
  std::byte* data() const noexcept { return pages_.data(); }
  std::byte* slot(std::uint32_t number) const noexcept {
    assert(number < count_);
    return data() + number * kSlotBytes;
  }

 private:
  const std::uint32_t count_;
  const Pages pages_;
};

}  // namespace tutti::qp
