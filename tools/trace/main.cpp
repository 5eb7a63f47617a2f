// tutti-trace: shows the last operations of the ranks of a job, who holds the others up, and who
// waits for whom.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tutti/tutti.hpp>

#include "common/files.h"
#include "common/text.h"
#include "tools/command.h"
#include "trace/chrome.h"
#include "trace/job.h"
#include "trace/report.h"
#include "trace/source.h"
#include "trace/watch.h"

namespace {

using namespace tutti::tools;

constexpr const char* kFooter = R"(Examples:
  tutti-trace                       the processes of this user that use tutti, and where each is now
  tutti-trace 4711                  the same for one process
  tutti-trace --job                 a report on all ranks of this machine: mismatch, straggler, deadlock
  tutti-trace --job -o trace.json   the same, and a trace for https://ui.perfetto.dev
  tutti-trace /tmp/traces           a report on dumps, from one machine or several
  tutti-trace --watch 2             stragglers by rank and by link, every two seconds

A process is only read, so that a process that hangs or is stopped by a signal is shown, too. With TUTTI_TRACE_DIR
a rank whose communicator fails dumps its last operations into that folder, one file for each process.
The exit status is 1 where something cannot be read, with the reason on standard error, and 2 for
wrong arguments.)";

struct Arguments {
  std::vector<std::string> named;
  bool job = false;
  std::string output;
  double watch = 0;
  int times = 0;
};

bool is_process(const std::string& named) { return tutti::parse_number<pid_t>(named).has_value(); }

void write_text(const std::string& path, const std::string& text) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      tutti::open_to_write(path, O_CREAT | O_TRUNC), std::fclose);
  if (!file || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      std::fflush(file.get()) != 0)
    throw std::runtime_error(path + ": it cannot be written: " + std::strerror(errno));
}

// A file appears when it is complete, in place of an older one. Devices and pipes are written to.
void write_file(const std::string& path, const std::string& text) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) return write_text(path, text);
  const std::string unfinished = path + ".part";
  try {
    write_text(unfinished, text);
  } catch (...) {
    unlink(unfinished.c_str());
    throw;
  }
  if (rename(unfinished.c_str(), path.c_str()) != 0)
    throw std::runtime_error(path + ": it cannot be written: " + std::strerror(errno));
}

int watch(const Arguments& arguments) {
  Watch watch;
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  for (int looks = 0; arguments.times == 0 || looks < arguments.times; ++looks) {
    if (looks > 0) std::this_thread::sleep_for(std::chrono::duration<double>(arguments.watch));
    std::vector<tutti::tools::TracedProcess> processes;
    std::vector<std::string> damaged;  // which the first look has named
    try {
      processes = read_all(arguments.named, damaged);
    } catch (const std::runtime_error&) {
      if (looks == 0) throw;  // later the job has ended
    }
    if (looks == 0)
      for (const std::string& reason : damaged) fmt::print(stderr, "tutti-trace: {}\n", reason);
    if (processes.empty()) {
      if (looks == 0 && !damaged.empty()) return 1;
      fmt::print("no process uses tutti\n");
      return 0;
    }
    fmt::print("{}{}{}", terminal ? "\x1b[H\x1b[2J" : "", watch.look(processes),
               terminal ? "" : "\n");
    if (std::fflush(stdout) != 0) return 0;  // nobody reads any more
  }
  return 0;
}

int run(const Arguments& arguments) {
  if (arguments.watch > 0) return watch(arguments);
  std::vector<std::string> damaged;
  const auto processes = read_all(arguments.named, damaged);
  for (const std::string& reason : damaged) fmt::print(stderr, "tutti-trace: {}\n", reason);
  const int status = damaged.empty() ? 0 : 1;
  if (processes.empty()) {
    if (damaged.empty()) fmt::print("no process of this user uses tutti\n");
    return status;
  }
  const bool dumps = !std::all_of(arguments.named.begin(), arguments.named.end(), is_process);
  if (!arguments.job && !dumps && arguments.output.empty()) {
    fmt::print("{}", list(processes));
    return status;
  }
  const TracedJob job = merge(processes);
  fmt::print("{}", report(job));
  if (!arguments.output.empty()) write_file(arguments.output, to_chrome(job));
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Shows what the ranks of a job did last, who holds the others up, and who waits for whom.",
      "tutti-trace");
  Arguments arguments;
  app.add_option("from", arguments.named,
                 "Processes (numbers), dumps, or folders of dumps; all processes if none is named");
  app.add_flag("--job", arguments.job, "A report on the ranks together");
  app.add_option("-o,--output", arguments.output,
                 "Also writes a trace for Perfetto and Chrome (JSON)")
      ->check([](const std::string& path) {
        return path.empty() ? "the path is empty" : std::string();
      });
  auto* watch_option =
      app.add_option("--watch", arguments.watch, "Shows stragglers every so many seconds")
          ->expected(0, 1)
          ->default_str("1")
          ->excludes("--job")
          ->excludes("--output")
          ->check(real_range(0.01, 3600));
  app.add_option("--times", arguments.times, "With --watch: ends after so many tables")
      ->needs(watch_option)
      ->check(CLI::Range(1, 1'000'000));
  app.set_version_flag("--version", std::string(tutti::version()));
  app.footer(kFooter);
  return run_command(
      app, argc, argv, [&] { return run(arguments); }, [](const std::exception&) { return 1; });
}
