// Unix-domain sockets in the abstract namespace, and the identity of the process at the other end.
// Such a socket has no file and its name disappears with the last descriptor.
#pragma once

#include <sys/types.h>

#include <string>

#include "common/fd.h"

namespace tutti::net {

/// Whether a socket carries a byte stream, or packets with boundaries (SOCK_SEQPACKET).
enum class LocalKind { stream, packets };

/// Returns a listening, non-blocking socket, or an empty descriptor if another socket has the name.
/// Throws `unavailable`.
Fd listen_local(const std::string& name, LocalKind kind = LocalKind::stream);

/// The result of an attempt to connect.
struct LocalConnecting {
  Fd socket;  ///< Connected and non-blocking; empty if the attempt failed.
  int error;  ///< The errno of connect(2); 0 if connected.

  bool nobody_listens() const noexcept;
  bool may_try_again() const noexcept;  ///< The listener's queue is full, or a signal interrupted.
};

/// Throws `unavailable` if this process cannot create a socket.
LocalConnecting connect_local(const std::string& name, LocalKind kind = LocalKind::stream);

/// The process at the other end of a socket.
struct PeerProcess {
  pid_t pid = 0;  ///< 0 if it is in a PID namespace that this process cannot see.
  uid_t uid = 0;

  std::string describe() const;  ///< "process 4711".
};

/// The process that listened or connected at the other end, as the kernel reports it. Throws
/// `unavailable` if the kernel does not report it.
PeerProcess peer_of(int socket);

/// Returns a pidfd of the process at the other end, which becomes readable when that process ends;
/// empty if the kernel provides none.
Fd watch_peer(int socket);

}  // namespace tutti::net
