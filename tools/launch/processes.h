// Starts and ends trees of processes.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "common/fd.h"

namespace tutti::tools {

/// How to start a rank's process.
struct SpawnRequest {
  std::vector<std::string> command;
  std::vector<std::string> environment;  ///< The complete environment, NAME=VALUE.
  sigset_t signal_mask{};                ///< The process's mask of blocked signals.
  bool keep_stdin = false;               ///< If false, standard input is /dev/null.
  bool capture_output = true;            ///< If false, it writes to this process's outputs.
  std::function<bool()> prepare;  ///< Runs last in the new process; if false, errno is the reason.
};

struct Spawned {
  pid_t pid = -1;
  Fd pidfd;
  Fd out, err;    ///< Non-blocking ends to read its output from, if it is captured.
  int error = 0;  ///< errno of what failed; 0 if the program runs.
};

/// Starts a process in a process group of its own, which is killed when this process ends. Returns
/// when the new process runs its program or has failed to.
[[nodiscard]] Spawned spawn(const SpawnRequest& request);

/// Sends `signal` to all processes that descend from this one, in any process group or session.
/// This process is a subreaper and inherits orphans, so no process of the job can escape.
void signal_descendants(int signal);

/// Sends SIGKILL to all descendants until none is left, and reaps them. Returns false if some are
/// left after ten seconds, in an uninterruptible sleep.
[[nodiscard]] bool kill_descendants();

/// Reaps ended children until it meets one for which `is_rank` is true, whose status the caller
/// reads. Returns false if there are no children, running or ended.
[[nodiscard]] bool reap_orphans(const std::function<bool(pid_t)>& is_rank);

/// Returns the signals that a launcher forwards to its ranks, and SIGCHLD.
[[nodiscard]] sigset_t handled_signals();

/// Returns for example "exited with status 3" or "was ended by signal 11 (Segmentation fault)".
[[nodiscard]] std::string describe_end(const siginfo_t& info);
/// Returns the status that a shell would report: the exit status, or 128 + signal.
[[nodiscard]] int exit_status(const siginfo_t& info);

}  // namespace tutti::tools
