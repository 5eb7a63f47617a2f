// A reference to memory of this rank from which messages may be sent without a copy.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/capabilities.h"

namespace tutti {

/// Describes where bytes are and how peers can reach them. The engine passes it to a channel, which
/// decides by its kind what it can do with it.
struct Memory {
  std::byte* address = nullptr;  ///< Null if there is no memory.
  std::size_t bytes = 0;
  MemoryKind kind = MemoryKind::host;
  /// The number of the registration that makes the kind `shared`; 0 if there is none.
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;  ///< The offset of the first byte in that segment.

  explicit operator bool() const noexcept { return address != nullptr; }
  /// Returns the part of this memory that begins at byte `from` and has `length` bytes.
  Memory part(std::uint64_t from, std::size_t length) const noexcept {
    assert(from <= bytes && length <= bytes - from);
    return {address + from, length, kind, segment, offset + from};
  }
};
static_assert(std::is_trivially_copyable_v<Memory> && sizeof(Memory) == 32);

}  // namespace tutti
