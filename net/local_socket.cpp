#include "net/local_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <tutti/error.hpp>

namespace tutti::net {
namespace {

// The value of SO_PEERPIDFD (Linux 6.5), which older headers do not define. Unlike a process ID,
// which may have been reused for another process, a pidfd always refers to the same process.
constexpr int kSoPeerPidfd = 77;

struct Address {
  sockaddr_un un{};
  socklen_t bytes = 0;

  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&un); }
};

Address abstract_address(const std::string& name) {
  Address address;
  assert(name.size() < sizeof address.un.sun_path);
  address.un.sun_family = AF_UNIX;
  std::memcpy(address.un.sun_path + 1, name.data(), name.size());  // a leading 0 means abstract
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Fd new_socket(LocalKind kind) {
  const int type = kind == LocalKind::stream ? SOCK_STREAM : SOCK_SEQPACKET;
  Fd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket)
    throw Error(ErrorKind::unavailable,
                fmt::format("no Unix socket: {}; raise the limit of open files (ulimit -n) if "
                            "that is it",
                            std::strerror(errno)));
  return socket;
}

}  // namespace

Fd listen_local(const std::string& name, LocalKind kind) {
  assert(!name.empty());
  Fd socket = new_socket(kind);
  const Address address = abstract_address(name);
  if (bind(socket.get(), address.get(), address.bytes) != 0) {
    if (errno == EADDRINUSE) return {};
    throw Error(ErrorKind::unavailable,
                fmt::format("cannot bind the Unix socket @{}: {}", name, std::strerror(errno)));
  }
  if (listen(socket.get(), SOMAXCONN) != 0)
    throw Error(ErrorKind::unavailable, fmt::format("cannot listen at the Unix socket @{}: {}",
                                                    name, std::strerror(errno)));
  return socket;
}

LocalConnecting connect_local(const std::string& name, LocalKind kind) {
  assert(!name.empty());
  Fd socket = new_socket(kind);
  const Address address = abstract_address(name);
  if (connect(socket.get(), address.get(), address.bytes) == 0) return {std::move(socket), 0};
  return {{}, errno};
}

bool LocalConnecting::nobody_listens() const noexcept { return error == ECONNREFUSED; }
bool LocalConnecting::may_try_again() const noexcept { return error == EAGAIN || error == EINTR; }

std::string PeerProcess::describe() const {
  return pid == 0 ? "a process of another container or machine" : fmt::format("process {}", pid);
}

PeerProcess peer_of(int socket) {
  assert(socket >= 0);
  ucred found{};
  socklen_t bytes = sizeof found;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &bytes) != 0)
    throw Error(ErrorKind::unavailable,
                fmt::format("the kernel does not say who is at the other end of a Unix socket: {}",
                            std::strerror(errno)));
  return {found.pid, found.uid};
}

Fd watch_peer(int socket) {
  assert(socket >= 0);
  int fd = -1;
  socklen_t bytes = sizeof fd;
  if (getsockopt(socket, SOL_SOCKET, kSoPeerPidfd, &fd, &bytes) == 0) return Fd(fd);
  const pid_t pid = peer_of(socket).pid;
  return Fd(pid == 0 ? -1 : static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace tutti::net
