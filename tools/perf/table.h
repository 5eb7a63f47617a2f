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
  int pid = 0;
  std::string host;
  int core = 0;      ///< Where it is pinned, or its local rank.
  std::string info;  ///< The processor's name.
};

/// What was measured of one call, out of place or in place.
struct Timing {
  double time_us = 0, algorithm_gb_s = 0, bus_gb_s = 0;
  std::optional<std::int64_t> wrong;  ///< None: not checked.
  std::int64_t iterations = 0;
  std::optional<double> one_way_ns;  ///< Of a cache line, just before.
};

struct Row {
  std::size_t size_bytes = 0, count = 0;
  std::string_view type, op;
  int root = -1;
  Timing out_of_place, in_place;
  std::optional<double> limit_us;
};

struct Summary {
  int wrong_results = 0;  ///< Checks that found something, of all ranks.
  double mean_bus_gb_s = 0;
};

/// "all_reduce_perf"
[[nodiscard]] std::string program_name(const Options& options);
/// `value` in `width` characters (6 or 7), with as many digits as fit.
[[nodiscard]] std::string fit(double value, int width);

[[nodiscard]] std::string format_banner(const Options& options, std::string_view version);
[[nodiscard]] std::string format_device(const Device& device);
[[nodiscard]] std::string format_titles(const Options& options);
[[nodiscard]] std::string format_row(const Row& row, const Options& options);
[[nodiscard]] std::string format_summary(const Summary& summary, const Options& options);

/// "1.2.3" as NCCL writes it: 10203.
[[nodiscard]] int version_code(std::string_view version);

}  // namespace tutti::perf
