// The costs of a machine from what calls took on it.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <tutti/types.hpp>

#include "common/machine_costs.h"

namespace tutti::perf {

/// What a call took, back to back.
struct Sample {
  Collective what = Collective::all_reduce;
  std::string_view algorithm;
  int ranks = 2, cores = 2;
  std::size_t bytes = 0;  ///< Of the whole vector, or of a block.
  std::size_t message_bytes = 0;
  double measured_us = 0;
  bool checks = false;  ///< Not to be fitted.
};

struct Fit {
  MachineCosts costs;
  std::vector<double> predicted_us;  ///< By sample.
};

/// In microseconds, by sample.
[[nodiscard]] std::vector<double> predict(const std::vector<Sample>& samples,
                                          const MachineCosts& costs);

/// By how much three of four predictions are off at most.
[[nodiscard]] std::int64_t error_percent(const std::vector<Sample>& samples,
                                         const std::vector<double>& predicted_us);

/// The costs with which the simulator comes nearest to the samples, found from `start` by changing
/// one number at a time: the least sum of |log(predicted / measured)|, which a few wrong samples do
/// not move. Of the links, that of `start.anywhere` and same_core are fitted. Takes seconds.
[[nodiscard]] Fit fit(const std::vector<Sample>& samples, const MachineCosts& start);

}  // namespace tutti::perf
