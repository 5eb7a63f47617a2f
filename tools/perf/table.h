// The table of nccl-tests 2.19.6, byte for byte, so that scripts that read theirs read ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perf/options.h"

namespace tutti::perf {

/// A rank, for the list at the head.
struct Device {
  int rank = 0;
  int group = 0;  ///< Its color: see Split.
  int pid = 0;
  std::string host;
  int core = 0;      ///< Where it is pinned, or its local rank.
  std::string info;  ///< The processor's name.
};

/// The times of single iterations (-I).
struct IterationTimes {
  int skipped = 0;                           ///< Of the first ones, which are in no statistics.
  std::vector<double> slowest_us;            ///< Of each iteration: the slowest rank's.
  std::vector<std::vector<double>> by_rank;  ///< In microseconds.
};

/// As nccl-tests computes them.
struct Statistics {
  double min = 0, max = 0, mean = 0, p50 = 0, p95 = 0, p99 = 0, deviation = 0, variation_pct = 0;
};
/// Of those that are not skipped; there must be one.
[[nodiscard]] Statistics statistics(const IterationTimes& times);

/// What was measured of one call, out of place or in place.
struct Timing {
  double time_us = 0;  ///< With -C: of the processor.
  double algorithm_gb_s = 0, bus_gb_s = 0;
  std::optional<std::int64_t> wrong;  ///< None: not checked.
  std::int64_t iterations = 0;
  std::optional<double> one_way_ns;  ///< Of a cache line, just before.
  std::optional<IterationTimes> per_iteration;
};

struct Row {
  std::size_t size_bytes = 0, count = 0;
  std::string_view type, op;
  int root = -1;
  Timing out_of_place, in_place;
  std::optional<double> limit_us;
  std::string time_of_day;  ///< With -S.
};

struct Summary {
  int wrong_results = 0;  ///< Checks that found something, of all ranks.
  double mean_bus_gb_s = 0;
  std::size_t communicator_bytes = 0, buffer_bytes = 0;  ///< Of the rank that has most.
};

/// Whether nothing was wrong, and the bandwidth as great as was asked for.
[[nodiscard]] bool passed(const Summary& summary, const Options& options);

/// "all_reduce_perf"
[[nodiscard]] std::string program_name(const Options& options);
/// `value` in `width` characters (6 or 7), with as many digits as fit.
[[nodiscard]] std::string fit(double value, int width);

/// "2026-11-21 05:22:07", local time.
[[nodiscard]] std::string time_now();

[[nodiscard]] std::string format_banner(const Options& options, std::string_view version);
[[nodiscard]] std::string format_device(const Device& device);
[[nodiscard]] std::string format_titles(const Options& options);
[[nodiscard]] std::string format_row(const Row& row, const Options& options);
[[nodiscard]] std::string format_summary(const Summary& summary, const Options& options);

/// "1.2.3" as NCCL writes it: 10203.
[[nodiscard]] int version_code(std::string_view version);

}  // namespace tutti::perf
