#include "transport/shm/packet.h"

#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

namespace tutti::shm {
namespace {

constexpr std::size_t kControlBytes = CMSG_SPACE(kMaxDescriptors * sizeof(int));
static_assert(kMaxDescriptors >= 2, "a greeting carries a status page and a doorbell");

void take_descriptors(msghdr& message, Descriptors& descriptors) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      Fd owned(fd);
      if (descriptors.count < kMaxDescriptors)
        descriptors.fds[descriptors.count++] = std::move(owned);
    }
  }
}

}  // namespace

Sent send_bytes(const Fd& socket, const void* data, std::size_t bytes, std::span<const int> fds) {
  assert(socket && data != nullptr && bytes > 0 && fds.size() <= kMaxDescriptors);
  assert(std::all_of(fds.begin(), fds.end(), [](int fd) { return fd >= 0; }));
  alignas(cmsghdr) std::array<char, kControlBytes> control{};
  iovec body{const_cast<void*>(data), bytes};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  for (;;) {
    if (sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return Sent::done;
    if (errno == EINTR) continue;
    // ETOOMANYREFS means that as many descriptors as this user may open are in flight already.
    const bool full = errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS;
    return full ? Sent::later : Sent::broken;
  }
}

Received receive_bytes(const Fd& socket, void* data, std::size_t bytes, Descriptors& descriptors) {
  assert(socket && data != nullptr && bytes > 0);
  alignas(cmsghdr) std::array<char, kControlBytes> control{};
  iovec body{data, bytes};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  descriptors = {};
  for (;;) {
    const ssize_t got = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0) {
      // ECONNRESET means that the peer closed without reading everything. It is reported once, and
      // what the peer sent can be read afterwards.
      if (errno == EINTR || errno == ECONNRESET) continue;
      return errno == EAGAIN ? Received::nothing : Received::closed;
    }
    take_descriptors(message, descriptors);
    assert(descriptors.count <= kMaxDescriptors && static_cast<std::size_t>(got) <= bytes);
    if ((message.msg_flags & MSG_CTRUNC) != 0) return Received::cut;
    if (got == 0) return Received::closed;
    const bool whole =
        (message.msg_flags & MSG_TRUNC) == 0 && static_cast<std::size_t>(got) == bytes;
    return whole ? Received::packet : Received::garbage;
  }
}

}  // namespace tutti::shm
