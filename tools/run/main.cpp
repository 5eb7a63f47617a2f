// tutti-run: starts the ranks of a job on this machine.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>

#include <tutti/error.hpp>
#include <tutti/tutti.hpp>

#include "common/address.h"
#include "launch/launch.h"
#include "tools/command.h"
#include "topology/discover.h"
#include "topology/placement.h"

namespace {

constexpr int kMostFailures = 1'000'000;

constexpr const char* kFooter = R"(Usage: tutti-run -n N [options] -- program [arguments]

Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, a secret of
the job's own (TUTTI_SECRET, unless that or TUTTI_SECRET_FILE is set), and reads from /dev/null; rank 0 reads our standard input where that is no terminal. When a rank fails the others
are ended, with everything that they have started; the exit status is that failure's (128 + signal
for a signal). With TUTTI_TRACE_DIR they get up to five seconds first, to write their traces and end. The exit status is 124 for the timeout, 126 and 127 where the program cannot be run or is not found, 2 for
wrong arguments. A line over 64 KiB is broken, and goes on with `[2]+`; of a progress bar drawn with
carriage returns, what stands there is shown at most twice a second.

With --max-failures, --keep-going or --max-restarts, the others go on when a rank fails, until one more fails than
is allowed; the program goes on by Communicator::shrink. The failures that are allowed leave the exit
status 0, unless no rank ends with 0: then it is the first failure's. A newcomer has MASTER_ADDR and
MASTER_PORT, but no RANK and no WORLD_SIZE. It comes to the job by Communicator::join, and the ranks take
it in by Communicator::grow. It gets the LOCAL_RANK and the cores of the rank that failed, and its lines
are marked with the next number after those of the ranks. None is started once a rank has ended with 0.
--join starts newcomers to a job of another tutti-run, which has to have --port, or of another launcher;
they need the job's secret (TUTTI_SECRET_FILE), unless they share memory with all of its ranks.

With --nccl the ranks' NCCL is tutti: LD_PRELOAD and LD_LIBRARY_PATH get its libnccl.so.2 (docs/nccl.md).

Unless told otherwise ranks share the cores out among themselves: each gets as many as the others,
neighbours together, and its threads stay on them. Ranks are not bound where they are more than the
cores, where somebody has bound tutti-run already, and where a quota of the container says that others
use these cores, too. `tutti-info --topology -n N` shows who gets what.)";

struct Arguments {
  tutti::tools::LaunchOptions launch;
  double timeout_s = 0, grace_s = 5;
  std::string join;
  std::string bind = "auto";
  bool nccl = false;
};

void declare(CLI::App& app, Arguments& arguments) {
  auto& launch = arguments.launch;
  app.add_option("-n,--ranks", launch.ranks, "Ranks to start")
      ->required()
      ->check(CLI::Range(1, 4096));
  app.add_option("--env", launch.environment, "NAME=VALUE for the ranks' environment; repeatable")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check([](const std::string& text) {
        const std::size_t end = text.find('=');
        if (end == 0 || end == std::string::npos) return "'" + text + "' is not NAME=VALUE";
        for (const char* own :
             {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
          if (text.substr(0, end) == own)
            return std::string(own) + " is what tutti-run itself sets (see --ranks and --port)";
        return std::string();
      });
  app.add_flag("--tag,!--no-tag", launch.tag,
               "Put each rank's number before its lines (the default), or let ranks write where we "
               "write");
  app.add_option("--bind", arguments.bind,
                 "auto, none, or the cpus of each rank: 0,1 or 0-3+8-11,4-7+12-15")
      ->capture_default_str()
      ->envname("TUTTI_BIND");
  app.add_option(
         "--timeout", arguments.timeout_s,
         "End the job after so many seconds, and the wait for a reader of its output; 0: never")
      ->check(tutti::tools::real_range(0, 1e9));
  app.add_option("--grace", arguments.grace_s, "Seconds from SIGTERM to SIGKILL")
      ->capture_default_str()
      ->check(tutti::tools::real_range(0, 1e6));
  auto* const port =
      app.add_option("--port", launch.port, "MASTER_PORT; by default one that is free")
          ->check(CLI::Range(1, 65535));
  app.add_option("--max-failures", launch.max_failures,
                 "Let the others go on when a rank fails, up to so many times")
      ->check(CLI::Range(0, kMostFailures));
  app.add_flag_callback(
         "--keep-going", [&launch] { launch.max_failures = kMostFailures; },
         "The same for any number of failures")
      ->excludes("--max-failures");
  app.add_option("--max-restarts", launch.max_restarts,
                 "As --max-failures, and start a newcomer in the place of the rank")
      ->check(CLI::Range(0, 4096));
  app.add_option("--join", arguments.join,
                 "Start newcomers to a running job: [HOST:]PORT, or its TUTTI_STORE (tcp://..., "
                 "file://...)")
      ->check([](const std::string& where) {
        return where.empty() ? "the address of the job is empty" : std::string();
      })
      ->excludes(port);
  app.add_flag("--nccl", arguments.nccl,
               "Have programs that were written for NCCL run on tutti, by its libnccl.so.2");
  app.set_version_flag("--version", std::string(tutti::version()));
  app.footer(kFooter);
  app.prefix_command();
}

/// Takes the command from the arguments that CLI11 left. An option in its place is a mistake, not a
/// program, unless a `--` precedes it.
void take_command(const CLI::App& app, tutti::tools::LaunchOptions& launch) {
  launch.command = app.remaining();
  const bool separated = !launch.command.empty() && launch.command.front() == "--";
  if (separated) launch.command.erase(launch.command.begin());
  if (launch.command.empty()) throw CLI::RequiredError("program");
  if (!separated && launch.command.front().starts_with('-'))
    throw CLI::ExtrasError({launch.command.front()});
}

/// Makes the ranks newcomers to the job at `where`.
void set_job(const std::string& where, tutti::tools::LaunchOptions& launch) {
  launch.newcomers = true;
  if (where.starts_with("tcp://") || where.starts_with("file:///"))
    return launch.environment.push_back("TUTTI_STORE=" + where);
  const bool port_alone = where.find(':') == std::string::npos;
  const auto address = tutti::parse_socket_address(port_alone ? "127.0.0.1:" + where : where);
  if (!address)
    throw CLI::ValidationError(
        "--join", "'" + where + "' is not [HOST:]PORT, tcp://HOST:PORT or file:///PATH");
  launch.environment.push_back("MASTER_ADDR=" + address->host);
  launch.environment.push_back("MASTER_PORT=" + std::to_string(address->port));
}

/// Returns the path of tutti's libnccl.so.2, which is installed beside this program or, in a build
/// folder, is in that of its own.
std::string path_of_nccl() {
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto installed = here.parent_path() / TUTTI_LIBDIR / "tutti/nccl/libnccl.so.2";
  for (const auto& path : {here.parent_path() / "bindings/nccl/libnccl.so.2", installed})
    if (std::filesystem::exists(path)) return path;
  throw tutti::Error(tutti::ErrorKind::unavailable,
                     "--nccl: there is no " + installed.string() + ": install tutti whole");
}

/// Puts tutti's libnccl.so.2 before any other in the ranks' environment. Programs that find NCCL by
/// a path of their own, as PyTorch's wheels do, need LD_PRELOAD.
void use_nccl(tutti::tools::LaunchOptions& launch) {
  const std::string path = path_of_nccl();
  const auto prepend = [&launch](const char* name, const std::string& value) {
    const char* const before = std::getenv(name);
    const bool is_set = before != nullptr && *before != '\0';
    launch.environment.push_back(name + ("=" + value) + (is_set ? ":" + std::string(before) : ""));
  };
  prepend("LD_PRELOAD", path);
  prepend("LD_LIBRARY_PATH", std::filesystem::path(path).parent_path());
}

/// Makes each rank's process bind itself to the rank's cpus before its program begins.
void bind(int ranks, const std::string& bind, tutti::tools::LaunchOptions& launch) {
  if (bind == "none" || (bind == "auto" && ranks == 1)) return;
  const tutti::Machine machine = tutti::discover();
  const auto placement = tutti::place(machine, ranks, bind);
  for (std::size_t rank = 0; rank < placement.ranks.size(); ++rank)
    tutti::check_usable(machine, placement.ranks[rank], static_cast<int>(rank));
  if (placement.ranks.empty()) return;
  launch.prepare = [cpus = placement.ranks](int rank) {
    return tutti::bind_thread(cpus[static_cast<std::size_t>(rank)]);
  };
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Starts N ranks of a program on this machine and sees them through.", "tutti-run");
  Arguments arguments;
  declare(app, arguments);
  const auto body = [&] {
    take_command(app, arguments.launch);
    const auto ms = [](double s) { return std::chrono::milliseconds(static_cast<long>(s * 1000)); };
    arguments.launch.timeout = ms(arguments.timeout_s);
    arguments.launch.grace = ms(arguments.grace_s);
    if (arguments.nccl) use_nccl(arguments.launch);
    if (!arguments.join.empty()) set_job(arguments.join, arguments.launch);
    // The ranks of the job that newcomers join have shared the cores out already.
    if (arguments.join.empty() || arguments.bind != "auto")
      bind(arguments.launch.ranks, arguments.bind, arguments.launch);
    return tutti::tools::launch(arguments.launch);
  };
  return tutti::tools::run_command(app, argc, argv, body, [](const std::exception& error) {
    const auto* refused = dynamic_cast<const tutti::Error*>(&error);
    const bool usage = refused != nullptr && refused->kind() == tutti::ErrorKind::usage;
    return usage ? tutti::tools::kUsageStatus : 1;
  });
}
