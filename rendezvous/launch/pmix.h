// What PMIx says of a process's job, and a word of rank 0 to all ranks: for jobs that Open MPI's
// mpirun, PRRTE's prun or Slurm's srun has started. The library libpmix.so.2 is loaded when such a
// job is found; nothing else needs it.
#pragma once

#include <memory>
#include <string>

#include "common/clock.h"
#include "common/environment.h"

namespace tutti::pmix {

/// Whether such a launcher has started this process.
bool has_started(Environment environment);

struct Job {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 0;  ///< On this machine.
  std::string name;                    ///< The launcher's name for the job.
};

/// From PMIx_Init to PMIx_Finalize, which are counted: a program that uses MPI has its own. One
/// thread at a time. A process that has called the last PMIx_Finalize can ask again, but not hear
/// rank 0 again: libpmix does not bring it what others say then.
class Client {
 public:
  /// Asks the launcher's server on this machine. Throws `unavailable` where there is no PMIx, or it
  /// does not answer by the deadline.
  explicit Client(TimePoint deadline);

  const Job& job() const noexcept { return job_; }

  /// What rank 0 says, on all ranks. `word`: rank 0's, empty on the others. A collective: every
  /// rank of the job comes. Throws `timeout`, `unavailable`.
  std::string hear_rank_0(const std::string& word, TimePoint deadline) const;

 private:
  class Session;
  std::shared_ptr<const Session> session_;
  Job job_;
};

}  // namespace tutti::pmix
