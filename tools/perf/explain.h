// What every algorithm would take for a call, and takes: --explain.
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

/// A size with all algorithms that can serve it, the cheapest predicted first.
struct Explained {
  std::size_t size_bytes = 0;
  std::vector<ExplainedAlgorithm> algorithms;
};

/// Measures, and calls `report` with each size. All ranks run the same. Throws `unavailable` for an
/// operation that no algorithm serves.
void explain(Communicator& comm, Bench& bench, const Options& options,
             const std::function<void(const Explained&)>& report);

[[nodiscard]] std::string format_explain_titles(const Options& options, int ranks);
[[nodiscard]] std::string format_explained(const Explained& explained);
/// How far predictions were off, and what the choices cost beside the fastest.
[[nodiscard]] std::string format_explain_summary(const std::vector<Explained>& all);

}  // namespace tutti::perf
