// Packets with descriptors over a Unix socket that keeps them whole (SOCK_SEQPACKET): a packet has
// come or it has not, there are no halves to put together.
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
  later,   ///< No room: try again when the socket is writable.
  broken,  ///< The peer is gone.
};
enum class Received {
  packet,
  nothing,  ///< Not yet.
  closed,   ///< The peer is gone; everything it sent has been received.
  garbage,  ///< A packet of another size.
  cut,      ///< Descriptors were lost: this process has no room for more (ulimit -n).
};

Sent send_bytes(const Fd& socket, const void* data, std::size_t bytes, std::span<const int> fds);
Received receive_bytes(const Fd& socket, void* data, std::size_t bytes, Descriptors& descriptors);

/// Non-blocking, both. `Body` is what both ends of one version agree on.
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
