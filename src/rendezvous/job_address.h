// Where the ranks of a job find its store, and how they know that it is theirs.
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

  /// A name in the abstract namespace: gone with its last socket, so a crash leaves nothing.
  std::string socket_name() const;
  std::uint64_t job_hash() const;
};

}  // namespace tutti
