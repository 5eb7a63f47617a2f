// The name under which the ranks of a job find its store on this machine, and the job's identity.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>

namespace tutti {

/// Where a process has a number from this one on in place of a rank, it is a newcomer, which comes
/// to a running job and has no rank yet.
inline constexpr int kFirstNewcomer = 1 << 30;
/// Names the process in messages: "rank 3", or "a newcomer".
std::string describe_rank(int rank);

/// Identifies a job on this machine.
struct JobAddress {
  int port = 0;           ///< MASTER_PORT, used as a name only; 0 if the launcher gives none.
  int size = 0;           ///< The number of ranks.
  std::string job;        ///< The launcher's name for the job; may be empty.
  uid_t uid = geteuid();  ///< The job's user. It is part of the name, and no other user may join.
  std::uint64_t server = 0;  ///< If not 0, the socket's name has this number in place of the port.

  /// The name of the store's Unix socket in the abstract namespace. It disappears with its last
  /// socket, so that a crash leaves nothing behind. If there is no port, it contains a hash of the
  /// job's name instead.
  std::string socket_name() const;
  /// "MASTER_PORT"; "job" if there is no port, and "address" if there is no job's name, either.
  std::string place_name() const;
  std::string place() const;  ///< For messages, for example "MASTER_PORT 29500".
  std::uint64_t job_hash() const;
};

}  // namespace tutti
