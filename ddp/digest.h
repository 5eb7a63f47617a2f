// A 64-bit digest of memory, with which ranks compare data without sending it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "common/wire.h"

namespace tutti::ddp {

/// Equal bytes have equal digests; different bytes have the same digest with a probability of about
/// 2^-64. It detects accidents, and does not resist an adversary. The digest depends on the byte
/// order.
inline std::uint64_t digest(std::span<const std::byte> bytes) noexcept {
  // There are four lanes, since a single one is limited by the latency of mix(): 4.1 GB/s against
  // 1.9 on Zen 3. A cheaper step (rotate and multiply, 17 GB/s) lets some pairs of flipped bits
  // cancel.
  std::array<std::uint64_t, 4> lanes{1, 2, 3, 4};
  std::array<std::uint64_t, 4> words{};
  constexpr std::size_t kStripe = sizeof words;
  static_assert(kStripe == 32 && sizeof words == sizeof lanes);
  std::size_t at = 0;
  for (; bytes.size() - at >= kStripe; at += kStripe) {
    std::memcpy(words.data(), bytes.data() + at, kStripe);
    for (std::size_t k = 0; k < 4; ++k) lanes[k] = mix(lanes[k] ^ words[k]);
  }
  words = {};
  if (at < bytes.size()) std::memcpy(words.data(), bytes.data() + at, bytes.size() - at);
  for (std::size_t k = 0; k < 4; ++k) lanes[k] = mix(lanes[k] ^ words[k]);

  // The size distinguishes inputs that differ only in the number of zeros at the end.
  std::uint64_t all = mix(bytes.size());
  for (const std::uint64_t lane : lanes) all = mix(all ^ lane);
  return all;
}

}  // namespace tutti::ddp
