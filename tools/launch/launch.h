// Starts the ranks of a job on this machine and sees them through: for tutti-run, and for tools
// that start their own ranks.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace tutti::tools {

struct LaunchOptions {
  std::string tool = "tutti-run";  ///< Who speaks in messages.
  int ranks = 1;
  std::vector<std::string> command;
  std::vector<std::string> environment;   ///< NAME=VALUE, over this process's own.
  bool tag = true;                        ///< Else ranks write where we write.
  std::function<bool(int)> prepare;       ///< In a rank's process; false: errno says why not.
  int port = 0;                           ///< MASTER_PORT; 0: one that is free.
  std::chrono::milliseconds timeout{0};   ///< Of the whole job; 0: none.
  std::chrono::milliseconds grace{5000};  ///< From SIGTERM to SIGKILL.
};

/// Runs the job and returns the status to exit with: the first failure's (128 + signal for a
/// signal), 124 for the timeout, 126 and 127 where the program cannot be run or is not found.
/// Nothing that the job started is left when it returns.
///
/// Call it before the process has threads, and return its result from main: it takes over the
/// process's signals, children and standard output.
[[nodiscard]] int launch(const LaunchOptions& options);

}  // namespace tutti::tools
