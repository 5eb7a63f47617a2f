// Asks PMIx for the properties of this process's job and broadcasts a text from rank 0 to all
// ranks, in jobs that Open MPI's mpirun, PRRTE's prun or Slurm's srun has started. The library
// libpmix.so.2 is loaded at run time, in such jobs only.
#pragma once

#include <memory>
#include <string>

#include "common/clock.h"
#include "common/environment.h"

namespace tutti::pmix {

/// Whether a launcher that supports PMIx has started this process.
bool has_started(Environment environment);

/// The job of this process.
struct Job {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 0;  ///< Among the ranks on this machine.
  std::string name;                    ///< The launcher's name for the job.
};

/// A PMIx session, from PMIx_Init to PMIx_Finalize. PMIx counts these calls, so a program that uses
/// MPI may have a session of its own. It may be used by one thread at a time. After the last
/// PMIx_Finalize a process can open a session again, but broadcast_from_rank_0() fails in it,
/// because libpmix then no longer delivers what other processes publish.
class Client {
 public:
  /// Connects to the launcher's server on this machine. Throws `unavailable` if there is no PMIx or
  /// the server does not answer by the deadline.
  explicit Client(TimePoint deadline);

  const Job& job() const noexcept { return job_; }

  /// Broadcasts a text from rank 0 and returns it on all ranks. `text` is the text on rank 0 and
  /// empty on the others. It is a collective call of all ranks of the job. Throws `timeout` if a
  /// rank does not call by the deadline, and `unavailable`.
  std::string broadcast_from_rank_0(const std::string& text, TimePoint deadline) const;

 private:
  class Session;
  std::shared_ptr<const Session> session_;
  Job job_;
};

}  // namespace tutti::pmix
