// Measures the calls of a table on the ranks that one thread drives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include <tutti/tutti.hpp>

#include "perf/limits.h"
#include "perf/measured_rank.h"
#include "perf/operations.h"
#include "perf/options.h"
#include "perf/table.h"
#include "perf/team.h"

namespace tutti::perf {

/// Runs the calls of a table on the ranks of a thread. All threads run the same calls and get the
/// same rows. If the ranks are split (NCCL_TESTS_SPLIT), the groups make their calls at the same
/// time, between barriers of all ranks; times and results cover all ranks, and bandwidths follow
/// from the size of rank 0's group, as in nccl-tests.
///
/// A time is measured as in nccl-tests: one call, a barrier, then iterations back to back.
/// Options::average makes one number of the means of all ranks. Then one more call is made, and its
/// results are checked on all ranks.
///
/// Calls on buffers of the host block. Calls on those of GPUs are given to streams, at most
/// kQueuedCalls ahead of the GPU, and their time ends when the streams have done them.
///
/// Not thread-safe.
class Bench {
 public:
  static constexpr std::size_t kQueuedCalls = 64;
  /// Fewer are given ahead where the host moves more bytes, since each has pinned memory.
  static constexpr std::size_t kQueuedBytes = std::size_t{256} << 20;

  /// Only rank 0 uses `limits`, while the other ranks wait. `team` and `options` outlive it.
  Bench(Team& team, const Options& options, Limits limits);
  /// Waits for the calls that an error has left.
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  /// Measures all rows, and calls `report` with each row as soon as it is measured.
  Summary run(const std::function<void(const Row&)>& report);

  /// Returns the time of one call by `algorithm`, out of place, in microseconds: the median of
  /// three measurements of at least `least_us` of calls back to back, or of -n calls. All ranks get
  /// the same number. The team has one rank.
  double time_us(const Call& call, std::string_view algorithm, double least_us);

 private:
  using Calls = std::vector<Call>;  ///< One call of each rank of the team.

  [[nodiscard]] Calls calls(DataType type, Op op, int root, std::size_t bytes) const;
  void warm_up(DataType type, Op op, int root);
  Row measure_row(const Calls& calls);
  Timing measure(const Calls& calls, bool in_place);
  /// The mean time of one call in microseconds, on which the ranks have agreed.
  struct Mean {
    double passed_us = 0, processor_us = 0;
  };
  Mean time_iterations(const Calls& calls, bool in_place, std::int64_t iterations);
  void run_once(const Calls& calls, bool in_place, std::int64_t number);
  void iterate(const Calls& calls, bool in_place, std::int64_t iteration);
  void start(const Calls& calls, bool in_place, std::int64_t number);
  void place_buffers(const Calls& calls, bool in_place);
  [[nodiscard]] Buffers buffers(std::size_t rank, const Calls& calls, bool in_place,
                                std::int64_t number) const;
  [[nodiscard]] std::size_t most_queued(const Call& call) const;
  void synchronize() const;
  void wait_for(std::size_t works_left);
  [[nodiscard]] IterationTimes gather_iterations();
  std::int64_t check(const Calls& calls, bool in_place);

  double combine(double time);
  double from_rank0(const std::function<double()>& measure);

  Team& team_;
  const Options& options_;
  const Limits limits_;
  std::vector<std::unique_ptr<MeasuredRank>> ranks_;  // those of the team, in its order
  std::vector<Buffers> same_;          // of each rank, for every call, unless buffers rotate
  std::vector<Work> works_;            // calls that were started and not waited for
  std::vector<double> iterations_us_;  // with -I: times of the last measurement

  std::uint64_t seed_ = 0;  // number of the last check; every check has different data
  int wrong_results_ = 0;
  double bus_gb_s_sum_ = 0;
  int timings_ = 0;
};

}  // namespace tutti::perf
