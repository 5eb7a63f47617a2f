// What a launcher tells a rank: in the variables that torch.distributed reads, or by PMIx.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/environment.h"
#include "rendezvous/launch/pmix.h"

namespace tutti {

inline constexpr int kMaxRanks = 65'536;

struct LaunchEnvironment {
  int rank = 0;
  int size = 1;
  int local_rank = 0;          ///< RANK where LOCAL_RANK is not set.
  int local_size = 0;          ///< LOCAL_WORLD_SIZE: ranks of this machine; 0: not said.
  std::string master_address;  ///< Empty for one rank, which needs to find nobody.
  int master_port = 0;         ///< 0 for one rank.
  bool tcp_alone = false;      ///< A tcp:// store was asked for: no Unix socket, on no machine.
  std::shared_ptr<const pmix::Client> pmix;  ///< Where there is no address yet: rank 0 says by it.
  std::string file;                          ///< Of a file:// store; then no address is needed.
  std::string agent_key;  ///< Where torchrun has MASTER_PORT: the key of rank 0's word there.
  std::string job;        ///< TORCHELASTIC_RUN_ID: tells jobs with the same port apart.
};

/// `store`: Config::store; what a tcp:// address says counts before MASTER_ADDR and MASTER_PORT.
/// Throws `usage` naming the variable, its value and what to do.
LaunchEnvironment read_launch_environment(Environment environment, std::string_view store = "auto");

/// The same, or what PMIx says where a launcher that speaks it has started this process and neither
/// RANK nor WORLD_SIZE is set. Throws what pmix::Client throws, too.
LaunchEnvironment find_launch(Environment environment, std::string_view store, TimePoint deadline);

/// Whether there is a launcher that find_launch() hears: this process is a rank. launched() of the
/// public headers is the same of process_environment().
bool is_launched(Environment environment);

/// This rank's number as the launcher's variables have it, for messages before the rank has joined;
/// empty where no launcher started this process.
std::string_view launched_rank(Environment environment);

}  // namespace tutti
