// What a launcher tells a rank, in the variables that torch.distributed reads.
#pragma once

#include <string>

#include "common/environment.h"

namespace tutti {

inline constexpr int kMaxRanks = 65'536;

struct LaunchEnvironment {
  int rank = 0;
  int size = 1;
  int local_rank = 0;          ///< RANK where LOCAL_RANK is not set: all ranks are on this machine.
  std::string master_address;  ///< Empty for one rank, which needs to find nobody.
  int master_port = 0;         ///< 0 for one rank.
  std::string job;             ///< TORCHELASTIC_RUN_ID: tells jobs with the same port apart.
};

/// Throws `usage` naming the variable, its value and what to do, and `unavailable` for a
/// MASTER_ADDR that is another machine's.
LaunchEnvironment read_launch_environment(Environment environment);

/// Whether `address` (a host name or a numeric address) is this machine. Asks no name server, which
/// could take minutes.
bool is_this_machine(const std::string& address);

}  // namespace tutti
