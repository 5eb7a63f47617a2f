#include "rendezvous/local_socket.h"

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

#include "rendezvous/job_address.h"

namespace tutti {
namespace {

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

[[noreturn]] void refuse_taken_name(const std::string& name) {
  const Connecting probe = connect_to(name);
  const PeerProcess owner = probe.socket ? peer_of(probe.socket.get()) : PeerProcess{};
  if (owner.pid == getpid())
    throw Error(ErrorKind::usage,
                "this process hosts a store at this MASTER_PORT already: keep the communicator "
                "that it belongs to, or destroy it on all ranks before another is made");
  throw Error(ErrorKind::unavailable,
              fmt::format("MASTER_PORT is in use: {} hosts the store @{}; give each job a port of "
                          "its own, or end that process",
                          owner.describe(), name));
}

}  // namespace

std::string JobAddress::socket_name() const { return fmt::format("tutti-{}-{}", uid, port); }

std::uint64_t JobAddress::job_hash() const {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a: equal in every build, unlike std::hash
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

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
  return pid == 0 ? "a process of another container" : fmt::format("process {}", pid);
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

Fd watch_process(pid_t pid) {
  if (pid == 0) return {};
  return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace tutti
