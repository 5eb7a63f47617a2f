// Where the messages of a ring lie, by a rule that both ends follow, whether a processor or a GPU
// runs them. ring.h describes how a message passes through a ring.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tutti {

inline constexpr std::size_t kRingAlign = 64;
inline constexpr std::size_t kInlineBytes = 40;
inline constexpr std::uint64_t kLines = 64;
inline constexpr std::uint64_t kCreditEvery = 16;
static_assert(std::has_single_bit(kLines), "a ring finds a message's line with a mask");
static_assert(2 * kCreditEvery <= kLines, "a sender learns of free lines before it needs them");

/// Returns the position of a payload of `bytes` when `position` bytes have been handed out. A
/// payload is contiguous and aligned to 64 bytes, and never wraps around the end of the ring. There
/// is always room for two payloads of at most data_bytes / 3.
constexpr std::uint64_t place(std::uint64_t position, std::size_t bytes,
                              std::size_t data_bytes) noexcept {
  const std::uint64_t offset = position % data_bytes;
  return offset + bytes <= data_bytes ? position : position - offset + data_bytes;
}
constexpr std::size_t padded(std::size_t bytes) noexcept {
  return (bytes + kRingAlign - 1) & ~(kRingAlign - 1);
}
static_assert(padded(0) == 0 && padded(1) == kRingAlign && padded(kRingAlign) == kRingAlign);
static_assert(place(64, 128, 192) == 64 && place(128, 128, 192) == 192, "no payload wraps around");

}  // namespace tutti
