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
#include "perf/start.h"
#include "perf/table.h"
#include "perf/team.h"
#include "perf/tune.h"
#include "rendezvous/launch/launch_environment.h"
#include "tools/command.h"

namespace tutti::perf {
namespace {

constexpr int kUsageStatus = 2;

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

/// Returns the devices of all ranks, on all ranks. `core` is that of the thread.
std::vector<Device> gather_devices(Team& team, int core, const Options& options) {
  struct Record {
    std::int64_t pid, number, group;
    char host[64], bus[16], info[128];
  };
  std::vector<Record> own;
  for (const TeamRank& rank : team.ranks()) {
    Record mine{::getpid(), core, options.split.color(rank.all.rank()), {}, {}, {}};
    ::gethostname(mine.host, sizeof mine.host - 1);
    if (rank.gpu) mine.number = rank.gpu->number();
    const std::string bus = rank.gpu ? rank.gpu->bus() : "cpu";
    const std::string info = rank.gpu ? rank.gpu->name() : processor_name();
    std::strncpy(mine.bus, bus.c_str(), sizeof mine.bus - 1);
    std::strncpy(mine.info, info.c_str(), sizeof mine.info - 1);
    own.push_back(mine);
  }
  std::vector<Device> devices;
  for (const Record& record : team.gather(own))
    devices.push_back({static_cast<int>(devices.size()), static_cast<int>(record.group),
                       static_cast<int>(record.pid), record.host, static_cast<int>(record.number),
                       record.info, record.bus});
  return devices;
}

/// Gives each rank of the team the communicator of its group, if there are groups.
void split(Team& team, const Options& options) {
  if (options.split == Split{}) return;
  std::vector<std::future<void>> threads;  // the ranks meet while they split
  for (TeamRank& rank : team.ranks())
    threads.push_back(std::async(std::launch::async, [&rank, &options] {
      rank.split = rank.all.split(options.split.color(rank.all.rank()), rank.all.rank());
    }));
  for (std::future<void>& thread : threads) thread.get();
}

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    throw Error(ErrorKind::unavailable,
                fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

/// Throws `usage` if the path cannot be written. It is checked before ranks are started, since no
/// rank is at fault.
void check_folder(std::string_view option, const std::string& path) {
  if (path.empty() || is_stream(path)) return;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::string name = folder.empty() ? "." : folder.string();
  if (::access(name.c_str(), W_OK) != 0)
    throw Error(ErrorKind::usage,
                fmt::format("{} {}: cannot write there: {}", option, path, std::strerror(errno)));
}

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
int run_team(Team& team, const Place& place, const Options& options,
             const std::vector<std::string>& arguments) {
  const std::vector<int> cores = allowed_cores();
  // The threads of the driver of a GPU would be on the same core.
  const std::optional<int> core = team.on_gpus() ? std::nullopt : take_core(place.local, place.of);
  const bool reports = team.has_rank0();
  Report report{arguments, time_now(), {}, {}, {}, {}, {}};
  std::optional<OutputFile> json, plot;
  if (reports && !options.json_path.empty()) json.emplace("-J", options.json_path);
  if (reports && !options.plot_path.empty()) plot.emplace("--plot", options.plot_path);
  if (json) print(fmt::format("# Writing JSON output to {}\n", json->path()));
  if (plot) print(fmt::format("# Drawing into {}\n", plot->path()));
  report.devices = gather_devices(team, core.value_or(place.local), options);
  // If it is bound to one core, rank 0 measures between that core and its neighbour's.
  const std::size_t neighbour = report.devices.size() > 1 ? 1 : 0;
  const int other = cores.size() > 1 ? cores[1] : report.devices[neighbour].number;
  require_ranks(options, team.front().all.size());
  split(team, options);
  Bench bench(team, options, Limits(cores.front(), other));
  if (options.explain) return explain_rank(team.front().group(), bench, options);
  if (!options.samples_path.empty())
    return sample_rank(team.front().all, bench, options, cores.size());
  const int device = team.front().all.device();
  if (options.on_gpus() || device >= 0) report.mover = mover(options, device >= 0);
  if (reports) {
    print(format_banner(options, version()));
    for (const Device& each : report.devices) print(format_device(each));
    if (report.mover) print(format_mover(*report.mover));
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

/// Puts buffers and kernels on the same GPUs: those of --device, else those of the configuration.
void agree_on_device(Options& options, Config& config) {
  if (!options.on_gpus()) return;
  const bool kernels = config.device != "none";
  if (options.device == kAnyDevice) options.device = kernels ? config.device : "rank";
  if (kernels) config.device = options.device;
  if (options.null_stream && options.device != "rank" && options.ranks_of_process() > 1)
    throw Error(ErrorKind::unavailable,
                fmt::format("-y 1 --device={}: the ranks of this process would share the default "
                            "stream of GPU {}, on which the first would hold up the others",
                            options.device, options.device));
}

int print_limits(const Options& options) {
  if (launched())
    throw Error(ErrorKind::usage,
                "--limits measures two cores of its own: run it without a launcher, whose ranks "
                "would disturb each other");
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
  check_folder("--tune-file", options.tune_file);  // only the default's folders are made
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
  std::optional<Options> options = parse(arguments);
  if (!options) return tools::finished("tutti-perf", 0);  // --help or --version
  if (options->limits) return print_limits(*options);
  if (options->tune) return tune_machine(*options);
  check_folder("-J", options->json_path);
  check_folder("--plot", options->plot_path);
  Config config;
  if (launched() || options->on_gpus() || options->threads > 1) config = configured(*options);
  agree_on_device(*options, config);
  const Measure measure = [&](Team& team, const Place& place) {
    return run_team(team, place, *options, arguments);
  };
  if (launched()) return run_process(*options, config, measure);
  if (options->ranks_of_process() > 1) return run_threads(*options, config, measure);
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
    std::fputs(fmt::format("{}: {}: {}\n", speaker, to_string(error.kind()), error.what()).c_str(),
               stderr);
    const bool refused =
        error.kind() == tutti::ErrorKind::usage || error.kind() == tutti::ErrorKind::unavailable;
    return refused ? tutti::perf::kUsageStatus : 1;
  } catch (const std::exception& error) {
    std::fputs(fmt::format("{}: {}\n", speaker, error.what()).c_str(), stderr);
    return 1;
  }
}
