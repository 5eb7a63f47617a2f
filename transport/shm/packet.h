// Packets with descriptors over a Unix socket of type SOCK_SEQPACKET, which delivers each packet
// whole or not at all.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include "common/fd.h"

namespace tutti::shm {

inline constexpr std::size_t kMaxDescriptors = 2;

struct Descriptors {
  std::array<Fd, kMaxDescriptors> fds;
  std::size_t count = 0;
};

enum class Sent {
  done,
  later,   ///< There is no room; try again when the socket is writable.
  broken,  ///< The peer is gone.
};
enum class Received {
  packet,
  nothing,  ///< No packet has arrived yet.
  closed,   ///< The peer is gone, and everything that it sent has been received.
  garbage,  ///< The packet has another size than expected.
  cut,      ///< Descriptors were lost, because this process has no room for more (ulimit -n).
};

Sent send_bytes(const Fd& socket, const void* data, std::size_t bytes, std::span<const int> fds);
Received receive_bytes(const Fd& socket, void* data, std::size_t bytes, Descriptors& descriptors);

/// Neither function blocks. Both ends, which run the same version, use the same `Body`.
template <typename Body>
Sent send_packet(const Fd& socket, const Body& body, std::span<const int> fds) {
  static_assert(std::has_unique_object_representations_v<Body>);
  return send_bytes(socket, &body, sizeof body, fds);
}
template <typename Body>
Received receive_packet(const Fd& socket, Body& body, Descriptors& descriptors) {
  static_assert(std::has_unique_object_representations_v<Body>);
  return receive_bytes(socket, &body, sizeof body, descriptors);
}

}  // namespace tutti::shm
