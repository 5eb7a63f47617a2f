// The number of times that a call is repeated to measure the time of one.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tutti::perf {

inline constexpr double kLeastUs = 10'000;            ///< Least time of all iterations of a timing.
inline constexpr std::int64_t kFewestIterations = 5;  ///< A single one may have been delayed.
inline constexpr std::int64_t kMostIterations = 10'000'000;

/// Returns whether `iterations` calls of `one_us` each are enough for a timing of `least_us`.
constexpr bool is_enough(std::int64_t iterations, double one_us, double least_us = kLeastUs) {
  return one_us * static_cast<double>(iterations) >= least_us || iterations >= kMostIterations;
}

/// Returns the number of iterations to try next. It grows at most tenfold, since the first calls
/// are slow and would overestimate the time.
inline std::int64_t more_iterations(std::int64_t iterations, double one_us,
                                    double least_us = kLeastUs) {
  const auto wanted = static_cast<std::int64_t>(1.1 * least_us / std::max(one_us, 1e-3));
  return std::clamp(wanted, iterations + 1, std::min(10 * iterations, kMostIterations));
}

}  // namespace tutti::perf
