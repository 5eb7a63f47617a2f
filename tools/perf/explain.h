// Implements --explain: the predicted and the measured time of every algorithm for a call.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "perf/bench.h"

namespace tutti::perf {

struct ExplainedAlgorithm {
  std::string name;
  std::size_t message_bytes = 0;
  std::optional<double> predicted_us;
  double measured_us = 0;
  bool chosen = false;
};

/// One size with all algorithms that can serve it, the one with the least predicted time first.
struct Explained {
  std::size_t size_bytes = 0;
  std::vector<ExplainedAlgorithm> algorithms;
};

/// Measures each size and calls `report` with it. All ranks run the same. Throws `unavailable` for
/// an operation that no algorithm serves.
void explain(Communicator& comm, Bench& bench, const Options& options,
             const std::function<void(const Explained&)>& report);

[[nodiscard]] std::string format_explain_titles(const Options& options, int ranks);
[[nodiscard]] std::string format_explained(const Explained& explained);
/// Says how far predictions were off, and how much slower the choices were than the fastest.
[[nodiscard]] std::string format_explain_summary(const std::vector<Explained>& all);

}  // namespace tutti::perf
