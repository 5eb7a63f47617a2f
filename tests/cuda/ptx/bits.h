// Products, shifts and bits of integers.
#pragma once

#include "tests/cuda/ptx/types.h"

namespace tutti::stand_in::ptx {

template <typename T>
T product_lo(T x, T y) {
  return static_cast<T>(static_cast<u64>(x) * static_cast<u64>(y));
}
template <typename T>
auto product_wide(T x, T y) {
  if constexpr (sizeof(T) == 2)
    return std::conditional_t<std::is_signed_v<T>, s32, u32>(x) * y;
  else
    return std::conditional_t<std::is_signed_v<T>, s64, u64>(x) * y;
}
template <typename T>
T product_hi(T x, T y) {
  __extension__ using Wide = __int128;
  __extension__ using UnsignedWide = unsigned __int128;
  return static_cast<T>(
      static_cast<std::conditional_t<std::is_signed_v<T>, Wide, UnsignedWide>>(x) * y >>
      sizeof(T) * 8);
}
/// PTX takes a count beyond the width for the width.
template <typename T>
T shift_left(T x, u32 count) {
  return count >= sizeof(T) * 8 ? T(0) : static_cast<T>(static_cast<u64>(x) << count);
}
template <typename T>
T shift_right(T x, u32 count) {
  if (count >= sizeof(T) * 8) return static_cast<T>(x < 0 ? -1 : 0);
  return static_cast<T>(x >> count);
}
inline u32 funnel_left(u32 low, u32 high, u32 count, bool wrap) {
  count = wrap ? count % 32 : count < 32 ? count : 32;
  return static_cast<u32>((u64{high} << 32 | low) << count >> 32);
}
inline u32 funnel_right(u32 low, u32 high, u32 count, bool wrap) {
  count = wrap ? count % 32 : count < 32 ? count : 32;
  return static_cast<u32>((u64{high} << 32 | low) >> count);
}
template <unsigned table>
u32 logic(u32 a, u32 b, u32 c) {
  u32 result = 0;
  for (unsigned row = 0; row < 8; ++row)
    if ((table >> row & 1) != 0)
      result |= ((row & 4) != 0 ? a : ~a) & ((row & 2) != 0 ? b : ~b) & ((row & 1) != 0 ? c : ~c);
  return result;
}
template <typename T>
u32 bits_popc(T x) {
  return static_cast<u32>(std::popcount(static_cast<Unsigned<sizeof(T)>>(x)));
}
template <typename T>
u32 bits_clz(T x) {
  return static_cast<u32>(std::countl_zero(static_cast<Unsigned<sizeof(T)>>(x)));
}
template <typename T>
u32 bits_bfind(T x) {
  return static_cast<u32>(sizeof(T) * 8 - 1) - bits_clz(x < 0 ? static_cast<T>(~x) : x);
}
template <typename T>
T bits_brev(T x) {
  T result = 0;
  for (unsigned bit = 0; bit < sizeof(T) * 8; ++bit)
    result = static_cast<T>(result << 1 | (x >> bit & 1));
  return result;
}
/// The field of `length` bits from `begin` on. Beyond the highest bit it is 0, or the sign.
template <typename T>
T extract(T x, u32 begin, u32 length) {
  constexpr u32 kWidth = sizeof(T) * 8;
  begin &= 255;
  length &= 255;
  if (length == 0) return 0;
  const u32 highest = begin + length - 1 < kWidth - 1 ? begin + length - 1 : kWidth - 1;
  const bool sign = std::is_signed_v<T> && (static_cast<u64>(x) >> highest & 1) != 0;
  T result = 0;
  for (u32 bit = 0; bit < kWidth; ++bit) {
    const bool set = bit < length && begin + bit < kWidth ? (x >> (begin + bit) & 1) != 0 : sign;
    if (set) result = static_cast<T>(result | static_cast<T>(u64{1} << bit));
  }
  return result;
}
template <typename T>
T insert(T field, T into, u32 begin, u32 length) {
  begin &= 255;
  length &= 255;
  for (u32 bit = 0; bit < length && begin + bit < sizeof(T) * 8; ++bit) {
    const T mask = static_cast<T>(T(1) << (begin + bit));
    into = static_cast<T>((field >> bit & 1) != 0 ? into | mask : into & ~mask);
  }
  return into;
}
inline u32 permute(u32 a, u32 b, u32 selector) {
  const u64 bytes = u64{b} << 32 | a;
  u32 result = 0;
  for (u32 place = 0; place < 4; ++place) {
    const u32 choice = selector >> 4 * place & 15;
    u32 byte = static_cast<u32>(bytes >> 8 * (choice & 7)) & 255;
    if ((choice & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    result |= byte << 8 * place;
  }
  return result;
}

}  // namespace tutti::stand_in::ptx
