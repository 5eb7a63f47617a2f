// Declares the header before each message between two queue pairs over UCX, and what is checked of
// it. It does not need UCX's headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

namespace tutti::ucx {

enum class Kind : std::uint16_t {
  frame = 1,  ///< A send of the queue pair: it goes to the oldest request to receive.
  /// A request to read memory of the receiver, which answers.
  read,
  answer,  ///< What a request to read asked for.
};

struct Header {
  static constexpr std::uint32_t kMagic = 0x31786375;  // "ucx1"

  std::uint32_t magic = kMagic;
  Kind kind = Kind::frame;
  std::uint16_t refused = 0;  ///< It is not 0 in an answer if the memory may not be read.
  /// The random number that the receiver has told its peer, and nobody else, over their
  /// authenticated connection.
  std::uint64_t token = 0;
  /// Counts the sender's frames from 0, in a frame. In a request to read and in its answer, this is
  /// the number of the request.
  std::uint64_t number = 0;
  std::uint64_t address = 0;  ///< A request to read says here where the memory begins.
  std::uint32_t key = 0;      ///< It names the registration that a request reads.
  std::uint32_t length = 0;   ///< The bytes of the frame or the answer, or those to be read.
};
static_assert(sizeof(Header) == 40 && sizeof(Kind) == 2);
static_assert(std::has_unique_object_representations_v<Header>);

/// Returns the header of a message with a payload of `payload_bytes`, or none where it makes no
/// sense; no byte of it has been believed then. Its token is not looked at.
std::optional<Header> parse_header(std::span<const std::byte> bytes, std::size_t payload_bytes);

}  // namespace tutti::ucx
