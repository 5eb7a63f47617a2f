// Prints the table of nccl-tests 2.19.6, byte for byte, so that scripts for it read this one, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perf/options.h"

namespace tutti::perf {

/// A rank in the list at the head of the table.
struct Device {
  int rank = 0;
  int group = 0;  ///< Its color; see Split.
  int pid = 0;
  std::string host;
  int number = 0;           ///< Its GPU, or the core to which it is bound, or its local rank.
  std::string info;         ///< Name of the GPU or processor.
  std::string bus = "cpu";  ///< The place of a GPU on the PCI bus.
};

/// The times of single iterations (-I).
struct IterationTimes {
  int skipped = 0;                 ///< Number of first iterations that the statistics leave out.
  std::vector<double> slowest_us;  ///< For each iteration, the time of the slowest rank.
  std::vector<std::vector<double>> by_rank;  ///< For each rank, in microseconds.
};

/// The statistics that nccl-tests computes.
struct Statistics {
  double min = 0, max = 0, mean = 0, p50 = 0, p95 = 0, p99 = 0, deviation = 0, variation_pct = 0;
};
/// Computes them over the iterations that are not skipped; there must be at least one.
[[nodiscard]] Statistics statistics(const IterationTimes& times);

/// The measurements of one call, out of place or in place.
struct Timing {
  double time_us = 0;  ///< With -C, the processor time.
  double algorithm_gb_s = 0, bus_gb_s = 0;
  std::optional<std::int64_t> wrong;  ///< None if the result was not checked.
  std::int64_t iterations = 0;
  std::optional<double> one_way_ns;  ///< Time of a cache line, measured just before.
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
  int wrong_results = 0;  ///< Number of checks that failed, on all ranks.
  double mean_bus_gb_s = 0;
  std::size_t communicator_bytes = 0, buffer_bytes = 0;  ///< The greatest of all ranks.
};

/// Whether no result was wrong and the bandwidth is as great as requested.
[[nodiscard]] bool passed(const Summary& summary, const Options& options);

/// Says what moves the bytes between ranks, where there are GPUs.
enum class Mover {
  host,              ///< It copies the buffers to pinned memory and back.
  host_transfers,    ///< The same, though kernels run: sends and receives are always the host's.
  kernels,           ///< Kernels of the GPUs that have the buffers.
  kernels_for_host,  ///< Kernels of GPUs, while the buffers are the host's.
};
/// `kernels` says whether GPUs run the collectives of the communicator.
[[nodiscard]] Mover mover(const Options& options, bool kernels);

/// Returns for example "all_reduce_perf".
[[nodiscard]] std::string program_name(const Options& options);
/// Formats `value` in `width` characters (6 or 7) with as many digits as fit.
[[nodiscard]] std::string fit(double value, int width);

/// Returns the local time, for example "2026-11-21 05:22:07".
[[nodiscard]] std::string time_now();

[[nodiscard]] std::string format_banner(const Options& options, std::string_view version);
[[nodiscard]] std::string format_device(const Device& device);
[[nodiscard]] std::string format_mover(Mover mover);
[[nodiscard]] std::string format_titles(const Options& options);
[[nodiscard]] std::string format_row(const Row& row, const Options& options);
[[nodiscard]] std::string format_summary(const Summary& summary, const Options& options);

/// Returns the version "1.2.3" as NCCL writes it: 10203.
[[nodiscard]] int version_code(std::string_view version);

}  // namespace tutti::perf
