// Describes the link that a transport offers between two ranks. This is a plain record, so that the
// route table, the engine and topology can read it without knowing the transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace tutti {

/// Where the bytes of a message are, as far as a transport has to tell the difference.
enum class MemoryKind : std::uint8_t {
  host,        ///< Ordinary memory of the process.
  shared,      ///< Memory that all ranks of the machine have mapped.
  registered,  ///< Host memory that a network device has registered, and reads by itself.
  device,      ///< Memory of a GPU.
};

/// A set of kinds of memory.
struct MemoryKinds {
  std::uint8_t bits = 0;

  constexpr MemoryKinds() = default;
  constexpr MemoryKinds(MemoryKind kind) noexcept  // NOLINT(google-explicit-constructor)
      : bits(bit(kind)) {}
  constexpr bool has(MemoryKind kind) const noexcept { return (bits & bit(kind)) != 0; }
  friend constexpr MemoryKinds operator|(MemoryKinds a, MemoryKinds b) noexcept {
    a.bits = static_cast<std::uint8_t>(a.bits | b.bits);
    return a;
  }
  bool operator==(const MemoryKinds&) const = default;

 private:
  static constexpr std::uint8_t bit(MemoryKind kind) noexcept {
    return static_cast<std::uint8_t>(1u << static_cast<unsigned>(kind));
  }
};
constexpr MemoryKinds operator|(MemoryKind a, MemoryKind b) noexcept {
  return MemoryKinds(a) | MemoryKinds(b);
}

/// The capabilities and costs of a link between two ranks. They are the same in both directions.
struct LinkCapabilities {
  MemoryKinds memory = MemoryKind::host;  ///< Kinds that messages may be sent from and received in.
  bool rings = false;  ///< Its channels are rings in memory that both ranks have mapped.
  bool get = false;    ///< A receiver can read the sender's memory without the sender's help.
  bool put = false;    ///< A sender can write the receiver's memory without the receiver's help.
  /// Connecting can fail although both ranks offer the transport: ranks then compare how it went,
  /// and pairs that failed use their next best transport.
  bool may_fail = false;
  /// The largest payload of one message.
  std::size_t largest_message = std::numeric_limits<std::size_t>::max();
  std::size_t registered_bytes = 0;  ///< Memory that each end registers with a device for the link.
  std::int64_t latency_ps = 0;       ///< From a post to when the receiver sees a short message.
  std::int64_t message_ps = 0;       ///< What a message costs the processor at each end.
  std::int64_t bytes_per_second = 1;  ///< The rate of large messages.

  bool operator==(const LinkCapabilities&) const = default;
};

/// The picoseconds that one message of `bytes` takes over a link.
constexpr std::int64_t message_time(const LinkCapabilities& link, std::int64_t bytes) noexcept {
  constexpr std::int64_t kSecond = 1'000'000'000'000;
  return link.latency_ps + 2 * link.message_ps + bytes * (kSecond / link.bytes_per_second);
}

}  // namespace tutti
