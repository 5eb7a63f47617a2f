// CRC-32C (Castagnoli's polynomial, as in iSCSI, RFC 3720): what finds bytes that have changed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// Of `bytes` bytes at `data`, with the processor's instruction where it has one: at about the
/// speed of memory.
std::uint32_t crc32c(const void* data, std::size_t bytes) noexcept;

/// The same by tables, on any processor.
std::uint32_t crc32c_by_tables(const void* data, std::size_t bytes) noexcept;

}  // namespace tutti
