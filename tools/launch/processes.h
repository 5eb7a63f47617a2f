// Starting and ending trees of processes.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "common/fd.h"

namespace tutti::tools {

/// How a rank's process is to be started.
struct SpawnRequest {
  std::vector<std::string> command;
  std::vector<std::string> environment;  ///< All of it, NAME=VALUE.
  sigset_t signal_mask{};                ///< Its mask of blocked signals.
  bool keep_stdin = false;               ///< Else it reads from /dev/null.
  bool capture_output = true;            ///< Else it writes where we write.
  std::function<bool()> prepare;         ///< In its process, at the end; false: errno says why not.
};

struct Spawned {
  pid_t pid = -1;
  Fd pidfd;
  Fd out, err;    ///< Its output to read from, non-blocking; none unless captured.
  int error = 0;  ///< errno of what failed; 0: it runs.
};

/// Starts a process in a process group of its own, which dies when we do. Returns when it runs its
/// program or has failed to.
[[nodiscard]] Spawned spawn(const SpawnRequest& request);

/// Sends `signal` to all processes that descend from this one, whatever group or session they are
/// in. As a subreaper we inherit orphans, so that none can get away.
void signal_descendants(int signal);

/// SIGKILL to all descendants until none is left; they are reaped. False: some are still there
/// after ten seconds, in an uninterruptible sleep.
[[nodiscard]] bool kill_descendants();

/// Reaps ended children up to the first one that `is_rank`: its status is somebody else's to read.
/// False: there are no children, ended or not.
[[nodiscard]] bool reap_orphans(const std::function<bool(pid_t)>& is_rank);

/// The signals that a launcher passes on to its ranks, and SIGCHLD.
[[nodiscard]] sigset_t handled_signals();

/// "exited with status 3", "was ended by signal 11 (Segmentation fault)".
[[nodiscard]] std::string describe_end(const siginfo_t& info);
/// As a shell reports it: the exit status, or 128 + signal.
[[nodiscard]] int exit_status(const siginfo_t& info);

}  // namespace tutti::tools
