// Measures one rank's part of a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include <tutti/tutti.hpp>

#include "perf/limits.h"
#include "perf/operations.h"
#include "perf/options.h"
#include "perf/pattern.h"
#include "perf/table.h"

namespace tutti::perf {

/// Runs the calls of a table on one rank; all ranks run the same, and come to the same rows. Where
/// ranks are split (NCCL_TESTS_SPLIT), each group makes its own calls at the same time as the
/// others, between barriers of all; times and results are of all ranks, bandwidths by the size of
/// rank 0's group, as in nccl-tests.
///
/// Each time is measured as nccl-tests does: one call, a barrier, then iterations back to back;
/// their mean on each rank becomes one number by Options::average. Then the results are checked, of
/// a call of its own, on all ranks.
///
/// Not thread-safe.
class Bench {
 public:
  /// `group`: of `all`, the ranks that this one's calls are with; may be `all`. `limits` is used by
  /// rank 0 alone, while the other ranks wait.
  Bench(Communicator& all, Communicator& group, const Options& options, Limits limits);

  /// Measures all rows; `report` is called with each as soon as it is there.
  Summary run(const std::function<void(const Row&)>& report);

  /// Of one call by `algorithm`, out of place, in microseconds: the median of three times at least
  /// `least_us` of calls back to back, or three times -n calls. All ranks come to the same number.
  double time_us(const Call& call, std::string_view algorithm, double least_us);

 private:
  using Memory = std::shared_ptr<std::byte>;

  [[nodiscard]] Memory allocate() const;
  void warm_up(DataType type, Op op, int root);
  Row measure_row(const Call& call);
  Timing measure(const Call& call, bool in_place);
  /// Of one call, in microseconds: as the ranks agree on it.
  struct Mean {
    double passed_us = 0, processor_us = 0;
  };
  Mean time_iterations(const Call& call, bool in_place, std::int64_t iterations);
  void iterate(const Call& call, bool in_place, std::int64_t iteration, const Buffers& same);
  [[nodiscard]] IterationTimes gather_iterations();
  std::int64_t check(const Call& call, bool in_place);
  std::size_t wrong_blocks(const Pattern& pattern, const Call& call, const std::byte* output) const;

  [[nodiscard]] Buffers buffers(const Call& call, bool in_place, std::int64_t number) const;
  double combine(double time);
  double from_rank0(const std::function<double()>& measure);

  Communicator& all_;
  Communicator& comm_;  // the group
  const Options& options_;
  const Ranks ranks_;
  const Limits limits_;
  CallOptions call_options_;        // of the reduction being measured
  Pattern::Element scalar_ = {};    // of a premultiplied sum
  const std::size_t buffer_bytes_;  // of the largest size, and what it is moved by
  Memory input_, output_;
  std::vector<Work> works_;            // of an iteration
  std::vector<double> iterations_us_;  // with -I: of the last timing

  std::uint64_t seed_ = 0;  // of the last check: every check has other data
  int wrong_results_ = 0;
  double bus_gb_s_sum_ = 0;
  int timings_ = 0;
};

}  // namespace tutti::perf
