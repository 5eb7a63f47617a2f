// CRC-32C (Castagnoli's polynomial, as in iSCSI, RFC 3720), a checksum that detects corrupted data.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// Returns the checksum of `bytes` bytes at `data`. Uses the processor's instruction if there is
/// one, and then runs at about the speed of memory.
std::uint32_t crc32c(const void* data, std::size_t bytes) noexcept;

/// Computes the same checksum with tables, on any processor.
std::uint32_t crc32c_by_tables(const void* data, std::size_t bytes) noexcept;

}  // namespace tutti
