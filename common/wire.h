// The header that every message carries, and the fingerprint by which ranks notice that their calls
// differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <tutti/types.hpp>

namespace tutti {

/// The header of a message: 16 bytes in native byte order (ranks check at start-up that they agree
/// on it).
struct Header {
  std::uint32_t operation = 0;    ///< Number of the operation in its communicator, modulo 2^32.
  std::uint32_t fingerprint = 0;  ///< Hash of everything that must agree; see fingerprint().
  std::uint32_t length = 0;       ///< Payload bytes.
  /// CRC-32C of the payload if the transport was asked for checksums; otherwise 0.
  std::uint32_t crc = 0;

  bool operator==(const Header&) const = default;
};
static_assert(sizeof(Header) == 16);
static_assert(std::is_trivially_copyable_v<Header>);

/// Value of CallSignature::lengths if only the two ranks that exchange a block know its length.
inline constexpr std::uint32_t kPairLengths = 1;

/// The properties of a call on which all ranks of an operation must agree, besides its number.
/// `count` is 0 where counts may differ.
struct CallSignature {
  Collective what = Collective::barrier;
  DataType type = DataType::uint8;
  Op op = Op::sum;
  std::int32_t root = 0;
  std::uint64_t count = 0;  ///< In elements.
  /// Index in the table of algorithms. It must agree because the ranks' schedules must fit
  /// together.
  std::uint32_t algorithm = 0;
  /// 0 if all blocks have `count` elements; kPairLengths; or else a hash of the lengths of all
  /// blocks, which must be the same on all ranks.
  std::uint32_t lengths = 0;
  /// reduction_id() of a program's own reduction, which replaces type and op; otherwise 0.
  std::uint64_t reduction = 0;
  bool accumulates_f32 = false;  ///< accumulate = f32: messages and scratch hold f32.
  bool reproducible = false;     ///< accumulate = reproducible, where that makes a difference.

  bool operator==(const CallSignature&) const = default;
};

// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Identifies a program's own reduction, so that ranks can compare it: a hash of its name, and the
/// bytes of its element.
constexpr std::uint64_t reduction_id(std::string_view name, std::size_t element_bytes) noexcept {
  std::uint64_t hash = mix(element_bytes);
  for (const char letter : name) hash = mix(hash ^ static_cast<unsigned char>(letter)) + 1;
  return hash >> 32 << 32 | static_cast<std::uint32_t>(element_bytes);
}

/// Returns the bytes of an element in the call's buffers.
inline std::size_t element_bytes(DataType type, std::uint64_t reduction) noexcept {
  return reduction != 0 ? static_cast<std::uint32_t>(reduction) : size_of(type);
}

/// The type that holds partial results between steps with accumulate = f32: f32 for floats of 16
/// and 8 bits, and otherwise the type itself.
constexpr DataType accumulation_type(DataType type) noexcept {
  switch (type) {
    case DataType::f16:
    case DataType::bf16:
    case DataType::f8e4m3:
    case DataType::f8e5m2: return DataType::f32;
    default: return type;
  }
}

/// Returns a hash of all members of `call`, which ranks compare in the headers of their messages.
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
