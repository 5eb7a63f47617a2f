// Implements --tune: measures the costs of this machine.
#pragma once

#include <string>
#include <vector>

#include "perf/bench.h"
#include "perf/fit.h"

namespace tutti::perf {

/// The calls that --tune measures for each number of ranks.
struct TuneCall {
  Operation what = Operation::all_reduce;
  std::size_t bytes = 0;
  bool checks = false;  ///< Predictions are compared with it; it does not take part in the fit.
};
[[nodiscard]] std::vector<TuneCall> tune_calls();

/// Returns the numbers of ranks to measure with on `cores`: two, as many as there are cores, and
/// more.
[[nodiscard]] std::vector<int> tune_ranks(int cores);

/// Measures with the ranks of `comm`, which share `cores`. The result is the same on all ranks.
[[nodiscard]] std::vector<Sample> measure_samples(Communicator& comm, Bench& bench, int cores);

/// Write and read samples, one on each line, which a rank passes to the process that started it.
/// parse_samples() throws `corrupt`.
[[nodiscard]] std::string to_text(const std::vector<Sample>& samples);
[[nodiscard]] std::vector<Sample> parse_samples(const std::string& text);

/// The result of tuning.
struct Tuned {
  Fit fit;
  std::vector<Sample> checked;       ///< Samples that were not fitted.
  std::vector<double> predicted_us;  ///< Predictions of these.
  double lost_percent = 0;  ///< Loss of the choices against the fastest, with the tuned costs.
  double lost_built_in_percent = 0;  ///< The same with the built-in costs.

  /// Whether the choices are no worse than with the built-in costs.
  [[nodiscard]] bool better() const { return lost_percent <= lost_built_in_percent + 1; }
};
[[nodiscard]] Tuned tune(const std::vector<Sample>& samples, const MachineCosts& start);

[[nodiscard]] std::string format_tuned(const Tuned& tuned);

}  // namespace tutti::perf
