// What this machine costs: --tune.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "perf/bench.h"
#include "perf/fit.h"

namespace tutti::perf {

/// The calls that --tune measures with so many ranks. The others are checked against them.
struct TuneCall {
  Operation what = Operation::all_reduce;
  std::size_t bytes = 0;
  bool checks = false;  ///< It is not fitted: predictions are compared with it.
};
[[nodiscard]] std::vector<TuneCall> tune_calls();

/// How many ranks to measure with on `cores`: two, as many as there are cores, and more.
[[nodiscard]] std::vector<int> tune_ranks(int cores);

/// Measures with the ranks of `comm`, which share `cores`; the same on all ranks.
[[nodiscard]] std::vector<Sample> measure_samples(Communicator& comm, Bench& bench, int cores);

/// A line for each, from a rank to the process that started it, and back. Throws `corrupt`.
[[nodiscard]] std::string to_text(const std::vector<Sample>& samples);
[[nodiscard]] std::vector<Sample> parse_samples(const std::string& text);

/// What came out.
struct Tuned {
  Fit fit;
  std::vector<Sample> checked;       ///< That were not fitted,
  std::vector<double> predicted_us;  ///< and their predictions.
  double lost_percent = 0;           ///< By the choices beside the fastest, with the tuned costs,
  double lost_built_in_percent = 0;  ///< with the built-in ones.

  /// Choices are no worse than with the built-in costs.
  [[nodiscard]] bool better() const { return lost_percent <= lost_built_in_percent + 1; }
};
[[nodiscard]] Tuned tune(const std::vector<Sample>& samples, const MachineCosts& start);

[[nodiscard]] std::string format_tuned(const Tuned& tuned);

}  // namespace tutti::perf
