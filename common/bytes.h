// Converts fixed-size messages to and from the bytes that represent them in memory, on the wire and
// in files.
#pragma once

#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>

namespace tutti {

static_assert(std::endian::native == std::endian::little,
              "numbers go over the wire as they lie in memory: least significant byte first");

/// Returns the bytes of `message`, which the view refers to.
template <typename T>
std::string_view bytes_of(const T& message) noexcept {
  static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>);
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

/// Returns the message at the start of `bytes`, or none if `bytes` is too short.
template <typename T>
std::optional<T> fixed_part(std::string_view bytes) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  T message;
  if (bytes.size() < sizeof message) return std::nullopt;
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

}  // namespace tutti
