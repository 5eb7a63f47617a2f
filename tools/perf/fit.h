// Finds the costs of a machine from the times of calls on it.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <tutti/types.hpp>

#include "collectives/planning/machine_costs.h"

namespace tutti::perf {

/// The mean time of a call, repeated back to back.
struct Sample {
  Collective what = Collective::all_reduce;
  std::string_view algorithm;
  int ranks = 2, cores = 2;
  std::size_t bytes = 0;  ///< Size of the whole vector, or of a block.
  std::size_t message_bytes = 0;
  double measured_us = 0;
  bool checks = false;  ///< Only checks the fit, and does not take part in it.
};

struct Fit {
  MachineCosts costs;
  std::vector<double> predicted_us;  ///< Indexed by sample.
};

/// Returns the predicted times in microseconds, indexed by sample.
[[nodiscard]] std::vector<double> predict(const std::vector<Sample>& samples,
                                          const MachineCosts& costs);

/// Returns an error that three of four predictions do not exceed.
[[nodiscard]] std::int64_t error_percent(const std::vector<Sample>& samples,
                                         const std::vector<double>& predicted_us);

/// Finds the costs with which the simulator comes nearest to the samples, by changing one number at
/// a time from `start`. It minimizes the sum of |log(predicted / measured)|, which a few wrong
/// samples do not move. Of the links it fits those of `start.anywhere` and same_core. Takes
/// seconds.
[[nodiscard]] Fit fit(const std::vector<Sample>& samples, const MachineCosts& start);

}  // namespace tutti::perf
