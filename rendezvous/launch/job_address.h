// Where the ranks of a job find its store on this machine, and how they know that it is theirs.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>

namespace tutti {

struct JobAddress {
  int port = 0;           ///< MASTER_PORT: only a name here, no TCP port is opened.
  int size = 0;           ///< Ranks.
  std::string job;        ///< The launcher's name for the job; may be empty.
  uid_t uid = geteuid();  ///< Whose job: part of the name, and the only user who may join.

  /// A name in the abstract namespace: gone with its last socket, so a crash leaves nothing. Where
  /// there is no port the job's name stands for it.
  std::string socket_name() const;
  std::string place_name() const;  ///< "MASTER_PORT", or what stands for it.
  std::string place() const;       ///< "MASTER_PORT 29500".
  std::uint64_t job_hash() const;
};

}  // namespace tutti
