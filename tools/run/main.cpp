// tutti-run: starts the ranks of a job on this machine.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iterator>
#include <string>
#include <vector>

#include "launch/launch.h"

namespace {

constexpr int kUsageStatus = 2;

constexpr const char* kFooter = R"(Usage: tutti-run -n N [options] -- program [arguments]

Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and reads
from /dev/null; rank 0 reads our standard input where that is no terminal. When a rank fails the others
are ended, with everything that they have started; the exit status is the first failure's (128 + signal
for a signal), 124 for the timeout, 126 and 127 where the program cannot be run or is not found, 2 for
wrong arguments. A line over 64 KiB is broken, and goes on with `[2]+`; of a progress bar drawn with
carriage returns, what stands there is shown at most twice a second.)";

struct Arguments {
  tutti::tools::LaunchOptions launch;
  double timeout_s = 0, grace_s = 5;
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
        return text.find('=') > 0 && text.find('=') != std::string::npos
                   ? std::string()
                   : "'" + text + "' is not NAME=VALUE";
      });
  app.add_flag("--tag,!--no-tag", launch.tag,
               "Put each rank's number before its lines (the default), or let ranks write where we "
               "write");
  app.add_option("--timeout", arguments.timeout_s, "End the job after so many seconds; 0: never")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--grace", arguments.grace_s, "Seconds from SIGTERM to SIGKILL")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--port", launch.port, "MASTER_PORT; by default one that is free")
      ->check(CLI::Range(1, 65535));
  app.footer(kFooter);
  app.prefix_command();
}

/// Takes the command from what CLI11 did not take. An option among it that no `--` precedes is a
/// mistake and not a program.
void take_command(const CLI::App& app, tutti::tools::LaunchOptions& launch) {
  launch.command = app.remaining();
  const bool separated = !launch.command.empty() && launch.command.front() == "--";
  if (separated) launch.command.erase(launch.command.begin());
  if (launch.command.empty()) throw CLI::RequiredError("program");
  if (!separated && launch.command.front().starts_with('-'))
    throw CLI::ExtrasError({launch.command.front()});
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Starts N ranks of a program on this machine and sees them through.", "tutti-run");
  Arguments arguments;
  declare(app, arguments);
  try {
    app.parse(argc, argv);
    take_command(app, arguments.launch);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "tutti-run: %s\nTry `tutti-run --help`.\n", error.what());
    return kUsageStatus;
  }
  const auto ms = [](double s) { return std::chrono::milliseconds(static_cast<long>(s * 1000)); };
  arguments.launch.timeout = ms(arguments.timeout_s);
  arguments.launch.grace = ms(arguments.grace_s);
  try {
    return tutti::tools::launch(arguments.launch);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tutti-run: %s\n", error.what());
    return 1;
  }
}
