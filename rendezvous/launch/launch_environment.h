// Reads what a launcher tells a rank, from the variables that torch.distributed uses or from PMIx.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/environment.h"
#include "rendezvous/launch/pmix.h"

namespace tutti {

inline constexpr int kMaxRanks = 65'536;

/// The facts that a launcher passes to a rank.
struct LaunchEnvironment {
  int rank = 0;
  int size = 1;
  int local_rank = 0;          ///< LOCAL_RANK, or RANK if LOCAL_RANK is not set.
  int local_size = 0;          ///< LOCAL_WORLD_SIZE, the ranks on this machine; 0 if not known.
  std::string master_address;  ///< Empty for a job of one rank, which connects to nobody.
  int master_port = 0;         ///< 0 for a job of one rank.
  bool tcp_alone = false;      ///< The user chose a tcp:// store: no rank uses a Unix socket.
  /// Set if PMIx started the job and no address was given: rank 0 broadcasts the address with it.
  std::shared_ptr<const pmix::Client> pmix;
  std::string file;  ///< The path of a file:// store, which needs no address; else empty.
  /// Set if torchrun's agent listens at MASTER_PORT: the key in the agent's store under which rank
  /// 0 publishes the address of its own store.
  std::string agent_key;
  std::string job;  ///< TORCHELASTIC_RUN_ID, which distinguishes jobs that have the same port.
};

/// Reads the variables of torch.distributed. `store` is Config::store; a tcp:// address in it takes
/// precedence over MASTER_ADDR and MASTER_PORT. Throws `usage`, naming the variable, its value and
/// how to correct it.
LaunchEnvironment read_launch_environment(Environment environment, std::string_view store = "auto");

/// Reads where the job is to which this process comes as a newcomer: from `store`, which is
/// Config::store, or MASTER_ADDR and MASTER_PORT. The rank is one of kFirstNewcomer and up, drawn
/// by chance, and the size is 1. Throws like read_launch_environment().
LaunchEnvironment read_newcomer_environment(Environment environment,
                                            std::string_view store = "auto");

/// Asks PMIx if a launcher that supports it started this process and neither RANK nor WORLD_SIZE is
/// set; otherwise calls read_launch_environment(). It also throws what pmix::Client throws.
LaunchEnvironment find_launch(Environment environment, std::string_view store, TimePoint deadline);

/// Whether a launcher that find_launch() supports started this process, so that it is a rank. The
/// public launched() calls this for process_environment().
bool is_launched(Environment environment);

/// Whether this process is no rank, and its variables say where the job is to which it comes. The
/// public newcomer() calls this for process_environment().
bool is_newcomer(Environment environment);

/// This rank's number as the launcher's variables give it, for messages before the rank has joined;
/// empty if no launcher started this process.
std::string_view launched_rank(Environment environment);

}  // namespace tutti
