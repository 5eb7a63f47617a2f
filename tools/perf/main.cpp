// tutti-perf: measures the bandwidth of collective operations.
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tutti/launch.hpp>
#include <tutti/tutti.hpp>

#include "collectives/planning/tuning_file.h"
#include "launch/launch.h"
#include "perf/bench.h"
#include "perf/cores.h"
#include "perf/explain.h"
#include "perf/json.h"
#include "perf/limits.h"
#include "perf/options.h"
#include "perf/plot.h"
#include "perf/table.h"
#include "perf/tune.h"
#include "rendezvous/launch/launch_environment.h"

namespace tutti::perf {
namespace {

constexpr int kUsageStatus = 2;

/// Returns the path of this program, which is started once for each rank.
std::string own_program() {
  std::error_code failed;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed)
    throw Error(ErrorKind::unavailable,
                fmt::format("cannot find this program to start ranks with it: /proc/self/exe: {}",
                            failed.message()));
  return path;
}

int start_ranks(const Options& options, const std::vector<std::string>& arguments) {
  require_ranks(options, options.ranks);
  tools::LaunchOptions launch;
  launch.tool = "tutti-perf";
  launch.ranks = options.ranks;
  launch.tag = false;  // only rank 0 writes
  launch.command = arguments;
  launch.command[0] = own_program();
  return tools::launch(launch);
}

/// Binds this rank to a core of its own if there are enough cores, unless a launcher has bound it
/// to one. Returns the core, or none.
std::optional<int> take_core(int local_rank, int local_ranks) {
  assert(0 <= local_rank && local_rank < local_ranks);
  const std::vector<int> cores = allowed_cores();
  if (cores.size() == 1) return cores.front();
  if (static_cast<std::size_t>(local_ranks) > cores.size()) return std::nullopt;
  const int core = cores[static_cast<std::size_t>(local_rank)];
  pin(core);
  return core;
}

/// Returns the devices of all ranks, on all ranks.
std::vector<Device> gather_devices(Communicator& comm, int core, int group) {
  struct Record {
    std::int64_t pid, core, group;
    char host[64], info[128];
  } mine{::getpid(), core, group, {}, {}};
  static_assert(sizeof(Record) % sizeof(std::int64_t) == 0);  // it is sent as numbers
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

/// Throws `usage` if the path cannot be written. It is checked before ranks are started, since no
/// rank is at fault.
void check_folder(std::string_view option, const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::string name = folder.empty() ? "." : folder.string();
  if (::access(name.c_str(), W_OK) != 0)
    throw Error(ErrorKind::usage,
                fmt::format("{} {}: cannot write there: {}", option, path, std::strerror(errno)));
}

/// The number of a rank among those of this machine.
struct Place {
  int local_rank = 0, local_ranks = 1;
};

/// Runs --explain; rank 0 prints the results.
int explain_rank(Communicator& comm, Bench& bench, const Options& options) {
  const bool reports = comm.rank() == 0;
  if (reports) print(format_explain_titles(options, comm.size()));
  std::vector<Explained> all;
  explain(comm, bench, options, [&](const Explained& explained) {
    all.push_back(explained);
    if (reports) print(format_explained(explained));
  });
  if (reports) print(format_explain_summary(all));
  return 0;
}

/// Measures samples for the process that has started this rank with --tune.
int sample_rank(Communicator& comm, Bench& bench, const Options& options, std::size_t cores) {
  const std::vector<Sample> samples = measure_samples(comm, bench, static_cast<int>(cores));
  if (comm.rank() == 0) OutputFile("--tune-samples", options.samples_path).write(to_text(samples));
  return 0;
}

/// Measures, and prints the results on rank 0. Returns the exit status.
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
  // If it is bound to one core, rank 0 measures between that core and its neighbour's.
  const int other = cores.size() > 1 ? cores[1] : report.devices[comm.size() > 1 ? 1 : 0].core;
  require_ranks(options, comm.size());
  std::optional<Communicator> part;
  if (options.split != Split{}) part = comm.split(group, comm.rank());
  Communicator& measured = part ? *part : comm;
  Bench bench(comm, measured, options, Limits(cores.front(), other));
  if (options.explain) return explain_rank(measured, bench, options);
  if (!options.samples_path.empty()) return sample_rank(comm, bench, options, cores.size());
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

/// Returns the configuration. The deadline of -T applies to every call, including the barriers
/// between the measured ones.
Config configured(const Options& options) {
  Config config = Config::from_env();
  if (options.timeout_s > 0) config.timeout = std::chrono::seconds(options.timeout_s);
  if (!options.samples_path.empty() && config.device != "none")
    throw Error(ErrorKind::usage,
                "--tune measures what the host costs, and TUTTI_DEVICE has GPUs run the "
                "collectives: set TUTTI_DEVICE=none");
  return config;
}

/// Runs this process as one of the ranks that a launcher started.
int run_process(const Options& options, const std::vector<std::string>& arguments) {
  if (options.threads > 1)
    throw Error(ErrorKind::unavailable,
                fmt::format("-t {}: a launcher started the ranks as processes, and ranks are "
                            "threads of one process or processes of one thread, not both",
                            options.threads));
  const Config config = configured(options);
  Communicator comm = Communicator::from_env(config);
  if (options.ranks_given && options.ranks != comm.size())
    throw Error(
        ErrorKind::usage,
        fmt::format("--ranks {}: a launcher started {} ranks; tell the launcher how many to "
                    "start, and leave --ranks out",
                    options.ranks, comm.size()));
  // This must come after the communicator is made, which holds PMIx: see pmix::Client.
  const LaunchEnvironment launch = find_launch(process_environment(), config.store,
                                               SteadyClock().now() + config.startup_timeout);
  return run_rank(std::move(comm),
                  {launch.local_rank, launch.local_size > 0 ? launch.local_size : launch.size},
                  options, arguments);
}

/// Runs all ranks as threads. If a rank fails, the end of its communicator ends the waiting of the
/// others.
int run_threads(const Options& options, const std::vector<std::string>& arguments) {
  require_ranks(options, options.threads);
  std::vector<Communicator> communicators =
      Communicator::in_process(options.threads, configured(options));
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
  print(fmt::format(
      "# tutti-perf version {}: limits of {}, cores {} and {}\n"
      "# One way of a cache line: {:.1f} ns\n"
      "# Both cores copying at once, half of it last written by the other core, plain and\n"
      "# past the caches; one core copying what the other wrote\n"
      "#\n"
      "# {:>10}  {:>9}  {:>9}  {:>9}  {:>9}\n"
      "# {:>10}  {:>9}  {:>9}  {:>9}  {:>9}\n",
      version(), processor_name(), cores[0], cores[1], limits.one_way_ns(), "size", "copy",
      "streaming", "limit", "one way", "(B)", "(us)", "(us)", "(us)", "(us)"));
  for (const std::size_t bytes : sizes(options)) {
    const double one_way_us = limits.one_way_ns() / 1e3;
    const Limits::Copy copy = limits.copy(bytes);
    print(fmt::format("{:12}  {:>9}  {:>9}  {:>9}  {:>9}\n", bytes, fit(copy.plain_us, 7),
                      fit(copy.streaming_us, 7), fit(std::max(one_way_us, copy.least_us()), 7),
                      fit(std::max(one_way_us, limits.take_over(bytes).least_us()), 7)));
  }
  return 0;
}

/// A folder of this process that is removed at the end of the scope.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code failed;
    const auto all = std::filesystem::temp_directory_path(failed);
    if (failed)
      throw Error(ErrorKind::unavailable,
                  fmt::format("cannot make a folder in that for temporary files (TMPDIR): {}",
                              failed.message()));
    std::string name = (all / "tutti-perf-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw Error(ErrorKind::unavailable,
                  fmt::format("cannot make the folder {}: {}", name, std::strerror(errno)));
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Starts ranks, which write their samples into a file. launch() needs a process of its own.
std::vector<Sample> samples_of(int ranks, const Options& options) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "samples", program = own_program();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::setenv("TUTTI_TUNING_FILE", "none", 1);
    tools::LaunchOptions launch;
    launch.tool = "tutti-perf --tune";
    launch.ranks = ranks;
    launch.tag = false;
    launch.command = {program, "-b", "4M", "-e", "4M", "--tune-samples", path};
    if (options.iterations > 0)
      launch.command.insert(launch.command.end(), {"-n", std::to_string(options.iterations)});
    ::_exit(tools::launch(launch));
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0)
    throw Error(ErrorKind::unavailable,
                fmt::format("measuring with {} ranks has failed; nothing is kept", ranks));
  std::ifstream file(path);
  return parse_samples({std::istreambuf_iterator<char>(file), {}});
}

/// Throws if the path cannot be written, before seconds are spent on measuring. An existing file
/// stays.
void check_writable(const std::filesystem::path& path, const MachineCosts& costs,
                    const MachineId& machine) {
  const std::filesystem::path beside = path.string() + ".try";
  write_tuning_file(beside, costs, machine);
  std::error_code none;
  std::filesystem::remove(beside, none);
}

int tune_machine(const Options& options) {
  if (launched())
    throw Error(ErrorKind::usage, "--tune starts its own ranks: run it without a launcher");
  const std::filesystem::path path = options.tune_file.empty()
                                         ? default_tuning_file(process_environment())
                                         : std::filesystem::path(options.tune_file);
  if (path.empty())
    throw Error(ErrorKind::usage,
                "--tune: neither XDG_CACHE_HOME nor HOME says where to keep it; give --tune-file");
  const auto cores = static_cast<int>(allowed_cores().size());
  const MachineId machine = this_machine();
  MachineCosts start;
  if (machine.cache_bytes > 0) start.cache_bytes = static_cast<std::int64_t>(machine.cache_bytes);
  check_writable(path, start, machine);
  std::vector<Sample> samples;
  for (const int ranks : tune_ranks(cores)) {
    print(fmt::format("# Measuring with {} ranks on {} cores\n", ranks, cores));
    std::vector<Sample> more = samples_of(ranks, options);
    samples.insert(samples.end(), more.begin(), more.end());
  }
  const Tuned tuned = tune(samples, start);
  print(format_tuned(tuned));
  if (!tuned.better()) {
    print("# Nothing is kept: the built-in costs choose better. Was the machine busy?\n");
    return 1;
  }
  write_tuning_file(path, tuned.fit.costs, machine);
  print(fmt::format("# Kept in {}\n", path.string()));
  return 0;
}

int perform(const std::vector<std::string>& arguments) {
  const std::optional<Options> options = parse(arguments);
  if (!options) return 0;
  if (options->limits) return print_limits(*options);
  if (options->tune) return tune_machine(*options);
  check_folder("-J", options->json_path);
  check_folder("--plot", options->plot_path);
  if (launched()) return run_process(*options, arguments);
  if (options->threads > 1) return run_threads(*options, arguments);
  return start_ranks(*options, arguments);
}

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) {
  const auto environment = tutti::process_environment();
  const std::string_view rank = tutti::launched_rank(environment);
  const std::string speaker =
      rank.empty() ? "tutti-perf" : fmt::format("tutti-perf: rank {}", rank);
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
