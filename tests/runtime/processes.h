// Ranks as real processes, joined by the environment as a launcher would set it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

namespace tutti::test {

/// Forked ranks. One thread uses it, and constructs it while the process has no other threads. The
/// destructor kills the ranks that are left.
class Processes {
 public:
  /// Each rank runs `body` and reports how it ended, in the form of outcome_of().
  Processes(int size, const std::function<void(int rank)>& body);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  pid_t pid(int rank) const { return ranks_[static_cast<std::size_t>(rank)].pid; }
  void signal(int rank, int number) const;

  /// Returns what a rank reported at its end, or "ended by signal N" if it could not report. Waits
  /// for a minute at most.
  std::string outcome(int rank);

 private:
  struct Rank {
    pid_t pid = -1;
    int report = -1;  // The read end of a pipe.
  };
  std::vector<Rank> ranks_;
};

/// Sets the environment variables that from_env() reads. Called in a forked rank before it has
/// threads.
void set_environment(int rank, int size, int port);

/// Joins the job from a forked rank, whose calls wait for five seconds at most.
Communicator join_soon(int rank, int size, int port);

/// Returns a port that no other job on this machine is likely to use, a different one at each call.
int unused_port();

}  // namespace tutti::test
