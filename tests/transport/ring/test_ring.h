// A ring with both of its ends in one process.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "transport/ring/ring.h"

namespace tutti {

// Owns a ring's memory and both of its ends.
struct TestRing {
  explicit TestRing(std::size_t data_bytes, PeerBell bell = {})
      : storage(new (std::align_val_t(alignof(RingMemory)))
                    std::byte[RingMemory::bytes(data_bytes)]),
        memory(new (storage.get()) RingMemory()),
        sender(memory, data_bytes, bell),
        receiver(memory, data_bytes, bell) {}

  struct Free {
    void operator()(std::byte* bytes) const {
      ::operator delete[](bytes, std::align_val_t(alignof(RingMemory)));
    }
  };
  std::unique_ptr<std::byte[], Free> storage;
  RingMemory* memory;
  SendRing sender;
  RecvRing receiver;
};

inline Header of_length(std::size_t bytes, std::uint32_t operation = 0) {
  return {operation, 0, static_cast<std::uint32_t>(bytes), 0};
}

}  // namespace tutti
