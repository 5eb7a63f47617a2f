// A reference to memory of this rank, from which messages may be sent without a copy.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "common/capabilities.h"

namespace tutti {

/// Where bytes are, and how peers can reach them. The engine hands it to a channel, which knows by
/// its kind what it can do with it.
struct Memory {
  std::byte* address = nullptr;  ///< Null: there are none.
  std::size_t bytes = 0;
  MemoryKind kind = MemoryKind::host;
  std::uint32_t segment = 0;  ///< The registration that makes it `shared`; 0: there is none.
  std::uint64_t offset = 0;   ///< Of the first byte in that segment.

  explicit operator bool() const noexcept { return address != nullptr; }
  /// The `length` bytes that begin `from` bytes behind the first; all of them lie in this memory.
  Memory part(std::uint64_t from, std::size_t length) const noexcept {
    assert(from <= bytes && length <= bytes - from);
    return {address + from, length, kind, segment, offset + from};
  }
};

}  // namespace tutti
