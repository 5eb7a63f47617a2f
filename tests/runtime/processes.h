// Ranks as real processes, joined by the environment as a launcher would set it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

namespace tutti::test {

/// Forked ranks. Own thread only; make it while the process has no other threads. Kills what is
/// left at the end.
class Processes {
 public:
  /// Each rank runs `body` and reports how it ended, as outcome_of().
  Processes(int size, const std::function<void(int rank)>& body);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  pid_t pid(int rank) const { return ranks_[static_cast<std::size_t>(rank)].pid; }
  void signal(int rank, int number) const;

  /// What a rank wrote down at its end; "ended by signal N" for one that could not. Bounded by a
  /// minute.
  std::string outcome(int rank);

 private:
  struct Rank {
    pid_t pid = -1;
    int report = -1;  // read end
  };
  std::vector<Rank> ranks_;
};

/// Sets what from_env() reads. In a forked rank, before it has threads.
void set_environment(int rank, int size, int port);

/// A number that no other job on this machine is likely to use, different at each call.
int unused_port();

}  // namespace tutti::test
