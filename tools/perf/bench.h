// Measures the calls of a table on one rank.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// Runs the calls of a table on one rank. All ranks run the same calls and get the same rows. If
/// the ranks are split (NCCL_TESTS_SPLIT), the groups make their calls at the same time, between
/// barriers of all ranks; times and results cover all ranks, and bandwidths follow from the size of
/// rank 0's group, as in nccl-tests.
///
/// A time is measured as in nccl-tests: one call, a barrier, then iterations back to back.
/// Options::average makes one number of the means of all ranks. Then one more call is made, and its
/// results are checked on all ranks.
///
/// Not thread-safe.
class Bench {
 public:
  /// `group` has the ranks of `all` that take part in this rank's calls, and may be `all` itself.
  /// Only rank 0 uses `limits`, while the other ranks wait.
  Bench(Communicator& all, Communicator& group, const Options& options, Limits limits);

  /// Measures all rows, and calls `report` with each row as soon as it is measured.
  Summary run(const std::function<void(const Row&)>& report);

  /// Returns the time of one call by `algorithm`, out of place, in microseconds: the median of
  /// three measurements of at least `least_us` of calls back to back, or of -n calls. All ranks get
  /// the same number.
  double time_us(const Call& call, std::string_view algorithm, double least_us);

 private:
  using Memory = std::shared_ptr<std::byte>;

  [[nodiscard]] Memory allocate() const;
  void warm_up(DataType type, Op op, int root);
  Row measure_row(const Call& call);
  Timing measure(const Call& call, bool in_place);
  /// The mean time of one call in microseconds, on which the ranks have agreed.
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
  Communicator& comm_;  // of the group
  const Options& options_;
  const Ranks ranks_;
  const Limits limits_;
  CallOptions call_options_;        // for the reduction that is being measured
  Pattern::Element scalar_ = {};    // factor of a premultiplied sum
  const std::size_t buffer_bytes_;  // for the largest size and the alignment's shift
  Memory input_, output_;
  std::vector<Work> works_;            // calls of an iteration
  std::vector<double> iterations_us_;  // with -I: times of the last measurement

  std::uint64_t seed_ = 0;  // number of the last check; every check has different data
  int wrong_results_ = 0;
  double bus_gb_s_sum_ = 0;
  int timings_ = 0;
};

}  // namespace tutti::perf
