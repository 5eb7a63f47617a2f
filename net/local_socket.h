// Unix-domain stream sockets in the abstract namespace, and who is at their other end.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "common/fd.h"

namespace tutti::rendezvous {

/// A listening, non-blocking socket. Throws `unavailable`, naming the process that has the name if
/// it can be told; `usage` where that is this process.
Fd listen_at(const std::string& name);

struct Connecting {
  Fd socket;  ///< Non-blocking; none while nobody listens or there is no room: try again.
  std::string_view why_not;
};

/// Throws `unavailable` for what will not get better.
Connecting connect_to(const std::string& name);

struct PeerProcess {
  pid_t pid = 0;  ///< 0: in a process namespace that this one does not see.
  uid_t uid = 0;

  std::string describe() const;  ///< "process 4711".
};

/// Who listened or connected at the other end, as the kernel says.
PeerProcess peer_of(int socket);

/// A descriptor that is readable once that process has ended; none where the kernel has none.
Fd watch_peer(int socket);

}  // namespace tutti::rendezvous
