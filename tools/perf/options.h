// What the user asks tutti-perf for.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/types.hpp>

namespace tutti::perf {

/// How the times of the ranks become one: the values of nccl-tests' `-a`.
enum class Average { rank0 = 0, mean = 1, min = 2, max = 3 };

struct Options {
  Collective what = Collective::all_reduce;
  int ranks = 2;  ///< To start; under a launcher, what it started.
  std::size_t min_bytes = 32u << 20, max_bytes = 32u << 20, step_bytes = 1u << 20;
  std::size_t step_factor = 1;  ///< 1: steps of step_bytes.
  int iterations = 0;           ///< 0: as many as ten milliseconds take.
  int warmup_iterations = 1;
  int checks = 1;
  std::vector<Op> ops{Op::sum};
  std::vector<DataType> types{DataType::f32};
  std::optional<int> root = 0;  ///< None: each rank in turn.
  Average average = Average::mean;
  std::string json_path;  ///< Empty: none.
  bool rotate = false;    ///< Walk through the buffers from one iteration to the next.
  bool limits = false;    ///< Measure the machine, and nothing else.
  bool show_limits = false, show_phase = false;

  [[nodiscard]] bool measures_phase() const noexcept { return show_phase || !json_path.empty(); }
};

/// Of nccl-tests: "all_reduce" for the operation, "float" for the type.
[[nodiscard]] std::string_view name_of(DataType type) noexcept;

/// "8", "64K", "1.5M", "2G" in bytes; none for what is no size.
[[nodiscard]] std::optional<std::size_t> parse_size(std::string_view text);

/// All sizes of the table, in order.
[[nodiscard]] std::vector<std::size_t> sizes(const Options& options);

/// Throws `usage` where the root is none of the ranks.
void require_root(const Options& options, int ranks);

/// Reads the command line. Throws `usage` for what makes no sense and `unavailable` for what tutti
/// does not have; returns none when it has answered itself (--help).
[[nodiscard]] std::optional<Options> parse(int argc, const char* const* argv);

}  // namespace tutti::perf
