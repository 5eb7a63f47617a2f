// Starts the ranks of a job on this machine and supervises them, for tutti-run and for tools that
// start ranks themselves.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace tutti::tools {

struct LaunchOptions {
  std::string tool = "tutti-run";  ///< Name of the program in messages.
  int ranks = 1;
  bool newcomers = false;  ///< Whether they come to a running job, which `environment` names.
  int max_failures = 0;    ///< So many ranks may fail before the job is ended.
  int max_restarts = 0;    ///< So many of the ranks that fail get a newcomer in their place.
  std::vector<std::string> command;
  std::vector<std::string> environment;  ///< NAME=VALUE; overrides this process's own.
  bool tag = true;                   ///< If false, ranks write directly to this process's outputs.
  std::function<bool(int)> prepare;  ///< Runs in a rank's process; if false, errno is the reason.
  int port = 0;                      ///< MASTER_PORT; 0: any free port.
  std::chrono::milliseconds timeout{0};   ///< Limit of the whole job; 0: none.
  std::chrono::milliseconds grace{5000};  ///< Time from SIGTERM to SIGKILL.
};

/// Runs the job and returns the exit status: that of the failure that ended it (128 + signal if a
/// signal ended the rank), 124 for the timeout, 126 and 127 if the program cannot be run or is not
/// found. Failures that the options allow leave it 0, unless no rank has ended with 0: then it is
/// the status of the first. When it returns, no process of the job is left.
///
/// The caller's process must not have threads yet, and must return the result from main, since this
/// function takes over the process's signals, children and standard output.
[[nodiscard]] int launch(const LaunchOptions& options);

}  // namespace tutti::tools
