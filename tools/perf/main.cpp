// tutti-perf: the bandwidth of collective operations.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tutti/tutti.hpp>

#include "launch/launch.h"
#include "perf/bench.h"
#include "perf/cores.h"
#include "perf/json.h"
#include "perf/limits.h"
#include "perf/options.h"
#include "perf/plot.h"
#include "perf/table.h"

namespace tutti::perf {
namespace {

constexpr int kUsageStatus = 2;

std::optional<int> number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::optional(std::atoi(text)) : std::nullopt;
}

int start_ranks(const Options& options, const std::vector<std::string>& arguments) {
  require_ranks(options, options.ranks);
  tools::LaunchOptions launch;
  launch.tool = "tutti-perf";
  launch.ranks = options.ranks;
  launch.tag = false;  // rank 0 alone writes
  launch.command = arguments;
  launch.command[0] = std::filesystem::read_symlink("/proc/self/exe");
  return tools::launch(launch);
}

/// Keeps this rank on a core of its own where each can have one. A launcher may have kept it on
/// one. Returns the core, or none.
std::optional<int> take_core(int local_rank, int local_ranks) {
  const std::vector<int> cores = allowed_cores();
  if (cores.size() == 1) return cores.front();
  if (static_cast<std::size_t>(local_ranks) > cores.size()) return std::nullopt;
  const int core = cores[static_cast<std::size_t>(local_rank)];
  pin(core);
  return core;
}

/// All ranks' devices, on all ranks.
std::vector<Device> gather_devices(Communicator& comm, int core, int group) {
  struct Record {
    std::int64_t pid, core, group;
    char host[64], info[128];
  } mine{::getpid(), core, group, {}, {}};
  static_assert(sizeof(Record) % sizeof(std::int64_t) == 0);  // it travels as numbers
  ::gethostname(mine.host, sizeof mine.host - 1);
  std::strncpy(mine.info, processor_name().c_str(), sizeof mine.info - 1);
  std::vector<Record> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(&mine, all.data(), sizeof(Record) / sizeof(std::int64_t), DataType::int64);
  std::vector<Device> devices;
  for (const Record& record : all)
    devices.push_back({static_cast<int>(devices.size()), static_cast<int>(record.group),
                       static_cast<int>(record.pid), record.host, static_cast<int>(record.core),
                       record.info});
  return devices;
}

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    throw Error(ErrorKind::unavailable,
                fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

/// Before ranks are started: a path that cannot be written is nothing that a rank did.
void check_folder(std::string_view option, const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::string name = folder.empty() ? "." : folder.string();
  if (::access(name.c_str(), W_OK) != 0)
    throw Error(ErrorKind::usage,
                fmt::format("{} {}: cannot write there: {}", option, path, std::strerror(errno)));
}

/// Where a rank is among those of this machine.
struct Place {
  int local_rank = 0, local_ranks = 1;
};

/// Measures and, on rank 0, reports. Returns the exit status.
int run_rank(Communicator comm, const Place& place, const Options& options,
             const std::vector<std::string>& arguments) {
  const std::vector<int> cores = allowed_cores();
  const std::optional<int> core = take_core(place.local_rank, place.local_ranks);
  const bool reports = comm.rank() == 0;
  Report report{arguments, time_now(), {}, {}, {}, {}};
  std::optional<OutputFile> json, plot;
  if (reports && !options.json_path.empty()) json.emplace("-J", options.json_path);
  if (reports && !options.plot_path.empty()) plot.emplace("--plot", options.plot_path);
  if (json) print(fmt::format("# Writing JSON output to {}\n", json->path()));
  if (plot) print(fmt::format("# Drawing into {}\n", plot->path()));
  const int group = options.split.color(comm.rank());
  report.devices = gather_devices(comm, core.value_or(place.local_rank), group);
  // Bound to one core, rank 0 measures between it and its neighbour's.
  const int other = cores.size() > 1 ? cores[1] : report.devices[comm.size() > 1 ? 1 : 0].core;
  require_ranks(options, comm.size());
  std::optional<Communicator> part;
  if (options.split != Split{}) part = comm.split(group, comm.rank());
  Bench bench(comm, part ? *part : comm, options, Limits(cores.front(), other));
  if (reports) {
    print(format_banner(options, version()));
    for (const Device& device : report.devices) print(format_device(device));
    print(format_titles(options));
  }
  report.summary = bench.run([&](const Row& row) {
    if (!reports) return;
    if (json || plot) report.rows.push_back(row);
    print(format_row(row, options));
  });
  report.end_time = time_now();
  if (reports) print(format_summary(report.summary, options));
  if (json) json->write(to_json(report, options, version()));
  if (plot) plot->write(to_svg(report, options));
  return passed(report.summary, options) ? 0 : 1;
}

/// As one of the ranks that a launcher started.
int run_process(const Options& options, const std::vector<std::string>& arguments) {
  const int rank = number_in_environment("RANK").value_or(0);
  const int ranks = number_in_environment("WORLD_SIZE").value_or(1);
  if (options.threads > 1)
    throw Error(ErrorKind::unavailable,
                fmt::format("-t {}: a launcher started {} ranks as processes, and ranks are "
                            "threads of one process or processes of one thread, not both",
                            options.threads, ranks));
  return run_rank(Communicator::from_env(),
                  {number_in_environment("LOCAL_RANK").value_or(rank),
                   number_in_environment("LOCAL_WORLD_SIZE").value_or(ranks)},
                  options, arguments);
}

/// All ranks, as threads. A rank that fails ends the others' waiting by its communicator's end.
int run_threads(const Options& options, const std::vector<std::string>& arguments) {
  require_ranks(options, options.threads);
  std::vector<Communicator> communicators = Communicator::in_process(options.threads);
  std::vector<std::future<int>> ranks;
  for (int rank = 0; rank < options.threads; ++rank)
    ranks.push_back(std::async(std::launch::async, run_rank,
                               std::move(communicators[static_cast<std::size_t>(rank)]),
                               Place{rank, options.threads}, options, arguments));
  for (const std::future<int>& rank : ranks) rank.wait();
  int status = 0;
  for (std::future<int>& rank : ranks) status = std::max(status, rank.get());
  return status;
}

int print_limits(const Options& options) {
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2)
    throw Error(ErrorKind::unavailable, "--limits needs two cores, and this process may use one");
  const Limits limits(cores[0], cores[1]);
  print(
      fmt::format("# tutti-perf version {}: limits of {}, cores {} and {}\n"
                  "# One way of a cache line: {:.1f} ns\n"
                  "# Both cores copying at once, half of it last written by the other core\n"
                  "#\n"
                  "# {:>10}  {:>9}  {:>9}  {:>9}\n"
                  "# {:>10}  {:>9}  {:>9}  {:>9}\n",
                  version(), processor_name(), cores[0], cores[1], limits.one_way_ns(), "size",
                  "copy", "streaming", "limit", "(B)", "(us)", "(us)", "(us)"));
  for (const std::size_t bytes : sizes(options)) {
    const double one_way_us = limits.one_way_ns() / 1e3;
    const Limits::Copy copy = limits.copy(bytes);
    print(fmt::format("{:12}  {:>9}  {:>9}  {:>9}\n", bytes, fit(copy.plain_us, 7),
                      fit(copy.streaming_us, 7),
                      fit(std::max(one_way_us, std::min(copy.plain_us, copy.streaming_us)), 7)));
  }
  return 0;
}

int perform(const std::vector<std::string>& arguments) {
  const std::optional<Options> options = parse(arguments);
  if (!options) return 0;
  if (options->limits) return print_limits(*options);
  check_folder("-J", options->json_path);
  check_folder("--plot", options->plot_path);
  if (std::getenv("RANK") != nullptr) return run_process(*options, arguments);
  if (options->threads > 1) return run_threads(*options, arguments);
  return start_ranks(*options, arguments);
}

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) {
  const char* rank = std::getenv("RANK");
  const std::string speaker =
      rank != nullptr ? fmt::format("tutti-perf: rank {}", rank) : std::string("tutti-perf");
  try {
    return tutti::perf::perform(tutti::perf::command_line(argc, argv));
  } catch (const tutti::Error& error) {
    fmt::print(stderr, "{}: {}: {}\n", speaker, to_string(error.kind()), error.what());
    const bool refused =
        error.kind() == tutti::ErrorKind::usage || error.kind() == tutti::ErrorKind::unavailable;
    return refused ? tutti::perf::kUsageStatus : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", speaker, error.what());
    return 1;
  }
}
