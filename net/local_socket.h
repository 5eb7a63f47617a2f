// Unix-domain sockets in the abstract namespace (no file, gone with the process), and who is at
// their other end.
#pragma once

#include <sys/types.h>

#include <string>

#include "common/fd.h"

namespace tutti::net {

/// What goes over a socket: bytes, or packets that stay whole (SOCK_SEQPACKET).
enum class LocalKind { stream, packets };

/// A listening, non-blocking socket; none where another has the name. Throws `unavailable`.
Fd listen_local(const std::string& name, LocalKind kind = LocalKind::stream);

struct LocalConnecting {
  Fd socket;  ///< Non-blocking; none: see `error`.
  int error;  ///< What connect(2) says; 0: connected.

  bool nobody_listens() const noexcept;
  bool may_try_again() const noexcept;  ///< There is no room in the listener's queue, or a signal
                                        ///< came.
};

/// Throws `unavailable` where this process can make no socket.
LocalConnecting connect_local(const std::string& name, LocalKind kind = LocalKind::stream);

struct PeerProcess {
  pid_t pid = 0;  ///< 0: in a process namespace that this one does not see.
  uid_t uid = 0;

  std::string describe() const;  ///< "process 4711".
};

/// Who listened or connected at the other end, as the kernel says.
PeerProcess peer_of(int socket);

/// A descriptor that is readable once that process has ended; none where the kernel has none.
Fd watch_peer(int socket);

}  // namespace tutti::net
