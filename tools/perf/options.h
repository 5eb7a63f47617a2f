// What the user asks tutti-perf for.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/types.hpp>

#include "perf/operations.h"

namespace tutti::perf {

/// How the times of the ranks become one: the values of nccl-tests' `-a`.
enum class Average { rank0 = 0, mean = 1, min = 2, max = 3 };

/// What follows a call: the values of nccl-tests' `-z`. Calls that are not aggregated block anyway.
enum class Blocking { no = 0, wait_and_barrier = 1, wait = 2, barrier_untimed = 3 };

/// NCCL_TESTS_SPLIT: ranks of one color measure together, all colors side by side.
struct Split {
  enum class By { nothing, bit_and, bit_or, remainder, quotient };
  By by = By::nothing;
  int number = 0;

  [[nodiscard]] int color(int rank) const noexcept;
  bool operator==(const Split&) const = default;
};

struct Options {
  Operation what = Operation::all_reduce;
  int ranks = 2;    ///< Processes to start; under a launcher, what it started.
  int threads = 1;  ///< More than one: ranks are threads of this process.
  std::size_t min_bytes = 32u << 20, max_bytes = 32u << 20, step_bytes = 1u << 20;
  std::size_t step_factor = 1;  ///< 1: steps of step_bytes.
  int unalign = 0;              ///< The first element's number in a buffer.
  int iterations = 0;           ///< 0: as many as ten milliseconds take.
  int aggregated = 1;           ///< Calls of an iteration, asynchronous where more than one.
  int warmup_iterations = 1;
  int run_cycles = 1;  ///< 0: for ever.
  int checks = 1;
  std::vector<Op> ops{Op::sum};
  std::vector<DataType> types{DataType::f32};
  std::optional<int> root = 0;  ///< None: each rank in turn.
  Average average = Average::mean;
  Blocking blocking = Blocking::no;
  int timeout_s = 0;  ///< Of a call; 0: the configuration's.
  bool parallel_init = false;
  bool per_iteration = false;
  int skipped_iterations = 0;  ///< Not in the statistics of per_iteration.
  int shared_buffers = 0;
  bool cpu_time = false, timestamps = false, memory = false;
  std::string json_path, plot_path;  ///< Empty: none.
  bool rotate = false;               ///< Walk through the buffers from one iteration to the next.
  bool limits = false;               ///< Measure the machine, and nothing else.
  bool show_limits = false, show_phase = false;
  bool explain = false;         ///< Price and measure each algorithm, and nothing else.
  bool tune = false;            ///< Measure what the machine costs, and nothing else.
  std::string tune_file;        ///< Where --tune keeps it; empty: the default.
  std::string samples_path;     ///< Of a rank that --tune has started: where its samples go.
  double alltoallv_spread = 1;  ///< NCCL_TESTS_ALLTOALLV_SPREAD: see Ranks.
  Split split;
  std::optional<double> min_bus_gb_s;  ///< NCCL_TESTS_MIN_BW: nine tenths of it will do.

  [[nodiscard]] bool measures_phase() const noexcept { return show_phase || !json_path.empty(); }
};

/// Of nccl-tests: "float" for the type, "all_reduce" for the operation, "mulsum" for the reduction.
[[nodiscard]] std::string_view name_of(DataType type) noexcept;
[[nodiscard]] std::string_view name_of(Operation what) noexcept;
[[nodiscard]] std::string_view name_of(Op op) noexcept;

/// "8", "64K", "1.5M", "2G" in bytes; none for what is no size.
[[nodiscard]] std::optional<std::size_t> parse_size(std::string_view text);

/// All sizes of the table, in order.
[[nodiscard]] std::vector<std::size_t> sizes(const Options& options);

/// "AND 0x7", "|1", "mod 2", "/ 0b100"; none for what is no such split.
[[nodiscard]] std::optional<Split> parse_split(std::string_view text);

/// Throws `usage` where the root is none of the ranks of each color, and `unavailable` where the
/// operation needs another number of them.
void require_ranks(const Options& options, int ranks);

/// The command line of a program linked to this one by an operation's name is that of tutti-perf
/// with the operation and --nccl-tests; any other is as it was.
[[nodiscard]] std::vector<std::string> command_line(int argc, const char* const* argv);

/// Reads a command line and NCCL_TESTS_*. Throws `usage` for what makes no sense and `unavailable`
/// for what tutti does not have; returns none when it has answered itself (--help).
[[nodiscard]] std::optional<Options> parse(const std::vector<std::string>& arguments);

}  // namespace tutti::perf
