// The options of tutti-perf.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/types.hpp>

#include "perf/operations.h"

namespace tutti::perf {

/// How the times of the ranks are combined: the values of nccl-tests' `-a`.
enum class Average { rank0 = 0, mean = 1, min = 2, max = 3 };

/// How an iteration ends: the values of nccl-tests' `-z`. Calls that are not aggregated always
/// block.
enum class Blocking { no = 0, wait_and_barrier = 1, wait = 2, barrier_untimed = 3 };

/// The split of NCCL_TESTS_SPLIT. Ranks of one color measure together, all colors at the same time.
struct Split {
  enum class By { nothing, bit_and, bit_or, remainder, quotient };
  By by = By::nothing;
  int number = 0;

  [[nodiscard]] int color(int rank) const noexcept;
  bool operator==(const Split&) const = default;
};

inline constexpr std::string_view kAnyDevice = "auto";  ///< Options::device

struct Options {
  Operation what = Operation::all_reduce;
  int ranks = 2;             ///< Processes to start, unless a launcher has started them.
  bool ranks_given = false;  ///< Whether the command line says how many.
  int threads = 1;           ///< If more than one, ranks are threads of this process.
  int gpus = 1;              ///< Ranks that each thread drives, each with buffers on a GPU.
  /// Says where the buffers are: empty, in the host's memory; "rank", on a GPU for each rank; a
  /// number, on that GPU; kAnyDevice, as the configuration says of kernels, else "rank".
  std::string device;
  bool rank_per_gpu = false;  ///< Start as many ranks as there are GPUs, in place of `ranks`.
  bool null_stream = false;   ///< Calls on GPUs are on the default stream.
  std::size_t min_bytes = 32u << 20, max_bytes = 32u << 20, step_bytes = 1u << 20;
  std::size_t step_factor = 1;  ///< If 1, the size grows by step_bytes.
  int unalign = 0;              ///< Number of the first element in a buffer.
  int iterations = 0;           ///< 0: as many as fit into ten milliseconds.
  int aggregated = 1;           ///< Calls of an iteration, asynchronous if more than one.
  int warmup_iterations = 1;
  int run_cycles = 1;  ///< 0: without end.
  int checks = 1;
  std::vector<Op> ops{Op::sum};
  std::vector<DataType> types{DataType::f32};
  std::optional<int> root = 0;  ///< None: each rank in turn.
  Average average = Average::mean;
  Blocking blocking = Blocking::no;
  int timeout_s = 0;  ///< Deadline of a call; 0: the configuration's.
  bool parallel_init = false;
  bool per_iteration = false;
  int skipped_iterations = 0;  ///< First iterations that per_iteration's statistics leave out.
  int shared_buffers = 0;
  bool cpu_time = false, timestamps = false, memory = false;
  std::string json_path, plot_path;  ///< Empty: not written.
  bool rotate = false;               ///< Walks through the buffers from one iteration to the next.
  bool limits = false;               ///< Measures the machine, and nothing else.
  bool show_limits = false, show_phase = false;
  bool explain = false;      ///< Predicts and measures each algorithm, and nothing else.
  bool tune = false;         ///< Measures the costs of the machine, and nothing else.
  std::string tune_file;     ///< File in which --tune stores them; empty: the default.
  std::string samples_path;  ///< File to which a rank that --tune has started writes its samples.
  double alltoallv_spread = 1;  ///< NCCL_TESTS_ALLTOALLV_SPREAD; see Ranks.
  Split split;
  std::optional<double> min_bus_gb_s;  ///< NCCL_TESTS_MIN_BW; nine tenths of it suffice.

  [[nodiscard]] bool on_gpus() const noexcept { return !device.empty(); }
  [[nodiscard]] int ranks_of_process() const noexcept { return threads * gpus; }
  [[nodiscard]] bool measures_phase() const noexcept {
    return show_phase || (!json_path.empty() && !on_gpus());
  }
};

/// The names of nccl-tests: "float" for the type, "all_reduce" for the operation, "mulsum" for the
/// reduction.
[[nodiscard]] std::string_view name_of(DataType type) noexcept;
[[nodiscard]] std::string_view name_of(Operation what) noexcept;
[[nodiscard]] std::string_view name_of(Op op) noexcept;

/// Reads "8", "64K", "1.5M" or "2G" as bytes; returns none if the text is not a size.
[[nodiscard]] std::optional<std::size_t> parse_size(std::string_view text);

/// Returns all sizes of the table, in order.
[[nodiscard]] std::vector<std::size_t> sizes(const Options& options);

/// Reads "AND 0x7", "|1", "mod 2" or "/ 0b100"; returns none if the text is not a split.
[[nodiscard]] std::optional<Split> parse_split(std::string_view text);

/// Throws `usage` if a group has no rank with the number of the root, and `unavailable` if the
/// operation needs another number of ranks.
void require_ranks(const Options& options, int ranks);

/// Returns the arguments. If the program was called by the name of an operation, such as
/// all_reduce_perf, they become tutti-perf's with the operation and --nccl-tests.
[[nodiscard]] std::vector<std::string> command_line(int argc, const char* const* argv);

/// Reads a command line and NCCL_TESTS_*. Throws `usage` for options that make no sense and
/// `unavailable` for those that tutti does not have. Returns none if it has already answered
/// (--help).
[[nodiscard]] std::optional<Options> parse(const std::vector<std::string>& arguments);

}  // namespace tutti::perf
