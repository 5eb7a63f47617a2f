#include "net/local_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>

#include <tutti/error.hpp>

namespace tutti::rendezvous {
namespace {

// SO_PEERPIDFD of Linux 6.5, which older headers do not name. Unlike a number, which another
// process may have been given since, it is the very process.
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
  std::memcpy(address.un.sun_path + 1, name.data(), name.size());  // a leading 0: abstract
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Fd new_socket() {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket)
    throw Error(ErrorKind::unavailable,
                fmt::format("the store gets no socket: {}; raise the limit of open files (ulimit "
                            "-n) if that is it",
                            std::strerror(errno)));
  return socket;
}

bool has_ended(pid_t pid) { return pid != 0 && kill(pid, 0) != 0 && errno == ESRCH; }

[[noreturn]] void refuse_taken_name(const std::string& name) {
  const Connecting probe = connect_to(name);
  const PeerProcess owner = probe.socket ? peer_of(probe.socket.get()) : PeerProcess{};
  if (owner.pid == getpid())
    throw Error(ErrorKind::usage,
                "this process hosts a store at this MASTER_PORT already: keep the communicator "
                "that it belongs to, or destroy it on all ranks before another is made");
  throw Error(
      ErrorKind::unavailable,
      fmt::format("MASTER_PORT is in use: {} hosts the store @{}{}; give each job a port of "
                  "its own, or end that process",
                  owner.describe(), name,
                  has_ended(owner.pid) ? " (it has ended, but not a child that it forked)" : ""));
}

}  // namespace

Fd listen_at(const std::string& name) {
  Fd socket = new_socket();
  const Address address = abstract_address(name);
  if (bind(socket.get(), address.get(), address.bytes) != 0) {
    if (errno == EADDRINUSE) refuse_taken_name(name);
    throw Error(ErrorKind::unavailable,
                fmt::format("the store cannot bind @{}: {}", name, std::strerror(errno)));
  }
  if (listen(socket.get(), SOMAXCONN) != 0)
    throw Error(ErrorKind::unavailable,
                fmt::format("the store cannot listen at @{}: {}", name, std::strerror(errno)));
  return socket;
}

Connecting connect_to(const std::string& name) {
  Fd socket = new_socket();
  const Address address = abstract_address(name);
  if (connect(socket.get(), address.get(), address.bytes) == 0) return {std::move(socket), {}};
  switch (errno) {
    case ECONNREFUSED: return {{}, "nobody listens there"};
    case EAGAIN: return {{}, "too many are waiting there"};
    case EINTR: return {{}, "a signal came"};
    default:
      throw Error(ErrorKind::unavailable,
                  fmt::format("cannot connect to the store @{}: {}", name, std::strerror(errno)));
  }
}

std::string PeerProcess::describe() const {
  return pid == 0 ? "a process of another container or machine" : fmt::format("process {}", pid);
}

PeerProcess peer_of(int socket) {
  ucred found{};
  socklen_t bytes = sizeof found;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &bytes) != 0)
    throw Error(ErrorKind::unavailable,
                fmt::format("the kernel does not say who is at the other end of the store's "
                            "socket: {}",
                            std::strerror(errno)));
  return {found.pid, found.uid};
}

Fd watch_peer(int socket) {
  int fd = -1;
  socklen_t bytes = sizeof fd;
  if (getsockopt(socket, SOL_SOCKET, kSoPeerPidfd, &fd, &bytes) == 0) return Fd(fd);
  const pid_t pid = peer_of(socket).pid;
  return Fd(pid == 0 ? -1 : static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace tutti::rendezvous
