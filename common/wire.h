// The header that every message carries, and the fingerprint by which ranks notice that they called
// different things.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tutti/types.hpp>

namespace tutti {

/// 16 bytes, native byte order (ranks agree on it at start).
struct Header {
  std::uint32_t operation = 0;    ///< Number of the operation in its communicator, modulo 2^32.
  std::uint32_t fingerprint = 0;  ///< Of everything that must agree; see fingerprint().
  std::uint32_t length = 0;       ///< Payload bytes.
  std::uint32_t crc = 0;  ///< CRC-32C of the payload on a transport that was asked for it; else 0.

  bool operator==(const Header&) const = default;
};
static_assert(sizeof(Header) == 16);

inline constexpr std::uint32_t kPairLengths = 1;  ///< Only a block's two ends know its length.

/// What all ranks of one operation must agree on, beside its number. `count` is 0 where counts may
/// differ.
struct CallSignature {
  Collective what = Collective::barrier;
  DataType type = DataType::uint8;
  Op op = Op::sum;
  std::int32_t root = 0;
  std::uint64_t count = 0;  ///< Elements.
  std::uint32_t algorithm =
      0;  ///< Index in the table of algorithms: the ranks' schedules must fit together.
  std::uint32_t lengths = 0;  ///< 0: all blocks have `count` elements. kPairLengths, or else a hash
                              ///< of all blocks' lengths, which all ranks must know alike.
  std::uint64_t reduction = 0;  ///< A program's own, in place of type and op: reduction_id(); or 0.
  bool accumulates_f32 = false;  ///< accumulate = f32: messages and scratch hold f32.
  bool reproducible = false;     ///< accumulate = reproducible, where that makes a difference.

  bool operator==(const CallSignature&) const = default;
};

constexpr std::uint64_t mix(
    std::uint64_t x) noexcept {  // the finaliser of splitmix64 (Steele, Lea, Flood 2014)
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// What ranks compare of a program's own reduction: a hash of its name, and its element's bytes.
constexpr std::uint64_t reduction_id(std::string_view name, std::size_t element_bytes) noexcept {
  std::uint64_t hash = mix(element_bytes);
  for (const char letter : name) hash = mix(hash ^ static_cast<unsigned char>(letter)) + 1;
  return hash >> 32 << 32 | static_cast<std::uint32_t>(element_bytes);
}

/// Bytes of an element in the call's buffers.
inline std::size_t element_bytes(DataType type, std::uint64_t reduction) noexcept {
  return reduction != 0 ? static_cast<std::uint32_t>(reduction) : size_of(type);
}

constexpr std::uint32_t fingerprint(const CallSignature& call) noexcept {
  std::uint64_t h =
      mix(static_cast<std::uint64_t>(call.what) | static_cast<std::uint64_t>(call.type) << 8 |
          static_cast<std::uint64_t>(call.op) << 16 |
          static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 24 |
          static_cast<std::uint64_t>(call.accumulates_f32) << 56 |
          static_cast<std::uint64_t>(call.reproducible) << 57);
  h = mix(h ^ call.count);
  h = mix(h ^ call.algorithm ^ static_cast<std::uint64_t>(call.lengths) << 32);
  if (call.reduction != 0) h = mix(h ^ call.reduction);
  return static_cast<std::uint32_t>(h ^ (h >> 32));
}

}  // namespace tutti
