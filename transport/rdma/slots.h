// Owns the memory of a connection's slots.
#pragma once

#include <sys/mman.h>

#include <cassert>
#include <cstddef>
#include <new>

#include "transport/rdma/frame.h"

namespace tutti::rdma {

/// Owns memory for kSlots slots, of which a forked child gets no copy: the device would otherwise
/// go on with pages that belong to the child after the parent has written to them, on kernels
/// before 5.12.
class Slots {
 public:
  static constexpr std::size_t kBytes = kSlots * kSlotBytes;

  Slots()
      : memory_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    madvise(memory_, kBytes, MADV_DONTFORK);
  }
  ~Slots() { munmap(memory_, kBytes); }
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  std::byte* data() const noexcept { return static_cast<std::byte*>(memory_); }
  std::byte* slot(std::uint32_t number) const noexcept {
    assert(number < kSlots);
    return data() + number * kSlotBytes;
  }

 private:
  void* const memory_;
};

}  // namespace tutti::rdma
