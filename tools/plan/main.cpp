// tutti-plan: prints the schedules that an algorithm writes, and verifies them; subcommands read
// files of schedules and topologies, and predict times.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "collectives/algorithms/algorithms.h"
#include "collectives/schedule/semantics.h"
#include "tools/command.h"
#include "tools/plan/commands.h"

namespace {

using namespace tutti;
using namespace tutti::tools;

constexpr const char* kFooter =
    R"(Without a collective: which algorithm knows which. Each command has a --help of its own.

Schedules go to standard output, the verdict to standard error. The exit status is 0 when they are
proved, in place and out of place, 1 when the verifier rejects them, 2 for wrong arguments, 3 when they
are too large for the verifier.

  tutti-plan all_reduce hierarchical -n 8
  tutti-plan verify algorithm.xml
  tutti-plan convert algorithm.xml --to json > own.json
  tutti-plan show topology.xml
  tutti-plan show topology.xml --svg > rings.svg
  tutti-plan synthesize all_gather --topology topology.xml > schedules.json
  tutti-plan explain all_reduce -n 8 --size 16M
  tutti-plan simulate all_reduce hierarchical -n 100000 --size 16M --topology fabric.json
  tutti-plan sweep all_reduce -n 2,4,8 --sizes 1K,1M > prices.csv)";

struct Arguments {
  std::string collective, algorithm = "ring";
  int ranks = 4, root = 0, window = 2;
  std::optional<int> rank;  // none: all of them
  std::vector<int> groups;
  bool json = false, dot = false, quiet = false;
};

void declare(CLI::App& app, Arguments& arguments) {
  auto* const collective =
      app.add_option("collective", arguments.collective, "all_reduce, broadcast, ...");
  app.add_option("-n,--ranks", arguments.ranks, "Number of ranks")
      ->capture_default_str()
      ->check(CLI::Range(1, 512));
  const std::vector<CLI::Option*> of_a_collective{
      app.add_option("algorithm", arguments.algorithm, "By name")->capture_default_str(),
      app.add_option("--root", arguments.root, "Root of broadcast, reduce, gather and scatter")
          ->capture_default_str(),
      add_list(app, "--groups", arguments.groups,
               "The number of each rank's group, as in 0,0,1,1: the machine on which it runs"),
      app.add_option("--rank", arguments.rank, "Show this rank's schedule alone"),
      app.add_option("--window", arguments.window, "Messages that a channel holds")
          ->capture_default_str()
          ->check(CLI::Range(1, 64)),
      app.add_flag("--json", arguments.json, "Print one JSON array in place of text"),
      app.add_flag("--dot", arguments.dot,
                   "Print a picture in Graphviz's language: pipe to dot -Tsvg")
          ->excludes("--json"),
      app.add_flag("-q,--quiet", arguments.quiet, "Prove only")};
  for (CLI::Option* const option : of_a_collective) option->needs(collective);
  app.set_version_flag("--version", std::string(tutti::version()));
  app.footer(kFooter);
}

/// Returns the named algorithm if it can serve the collective; otherwise throws.
const Algorithm& algorithm_for(Collective what, const Arguments& arguments) {
  std::string able;
  for (const Algorithm& algorithm : algorithms()) {
    if (!algorithm.knows(what, arguments.ranks)) continue;
    if (algorithm.name == arguments.algorithm) return algorithm;
    able += fmt::format(" {}", algorithm.name);
  }
  throw CLI::ValidationError(fmt::format("no algorithm '{}' knows {} of {} ranks; these do:{}",
                                         arguments.algorithm, to_string(what), arguments.ranks,
                                         able));
}

void check_rank(const char* option, int rank, int ranks) {
  if (rank < 0 || rank >= ranks)
    throw CLI::ValidationError(fmt::format("{} {} is no rank of {}", option, rank, ranks));
}

void print_matrix(int ranks) {
  std::string line = fmt::format("{:<20}", "");
  for (const Collective what : all_collectives()) line += fmt::format("{:<16}", to_string(what));
  fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  for (const Algorithm& algorithm : algorithms()) {
    line = fmt::format("{:<20}", algorithm.name);
    for (const Collective what : all_collectives())
      line += fmt::format("{:<16}", algorithm.knows(what, ranks) ? "yes" : "-");
    fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
}

void print(std::span<const Schedule> schedules, const Arguments& arguments) {
  if (arguments.rank) schedules = schedules.subspan(std::size_t(*arguments.rank), 1);
  std::string text;
  for (const Schedule& schedule : schedules) {
    if (!text.empty()) text += arguments.json ? "," : "\n";
    text += arguments.json ? to_json(schedule) : to_text(schedule);
  }
  fmt::print("{}", arguments.json ? "[" + text + "]\n" : arguments.dot ? to_dot(schedules) : text);
  std::fflush(stdout);  // the verdict, which may go to the same file, comes after it
}

int plan(const Arguments& arguments) {
  const Collective what = collective_named(arguments.collective);
  const Algorithm& algorithm = algorithm_for(what, arguments);
  check_rank("--root", arguments.root, arguments.ranks);
  if (arguments.root != 0 && !collectives::has_root(what))
    throw CLI::ValidationError(fmt::format("{} has no root", to_string(what)));
  if (!arguments.groups.empty() && static_cast<int>(arguments.groups.size()) != arguments.ranks)
    throw CLI::ValidationError(fmt::format("--groups has {} numbers for {} ranks",
                                           arguments.groups.size(), arguments.ranks));
  if (!arguments.groups.empty() && !algorithm.heeds_groups())
    throw CLI::ValidationError(
        fmt::format("--groups: {} plans alike whatever the groups are", algorithm.name));
  if (arguments.rank) check_rank("--rank", *arguments.rank, arguments.ranks);

  std::vector<Schedule> schedules;
  for (int rank = 0; rank < arguments.ranks; ++rank)
    schedules.push_back(
        algorithm.plan({what, rank, arguments.ranks, arguments.root, arguments.groups}));
  if (!arguments.quiet) print(schedules, arguments);
  return prove(schedules, arguments.window);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Shows the schedules that an algorithm writes, and proves them; reads files of schedules and "
      "topologies, and predicts times.",
      "tutti-plan");
  Arguments arguments;
  Run run;
  declare(app, arguments);
  for (const auto add :
       {add_verify, add_convert, add_show, add_explain, add_simulate, add_sweep, add_synthesize})
    add(app, run);
  app.require_subcommand(0, 1);
  const auto body = [&] {
    if (run && !arguments.collective.empty())
      throw CLI::ValidationError(
          fmt::format("'{}' is no argument of this command", arguments.collective));
    if (run && app.count("--ranks") > 0)
      throw CLI::ValidationError("-n stands before the command: write it behind");
    if (run) return run();
    if (!arguments.collective.empty()) return plan(arguments);
    print_matrix(arguments.ranks);
    return 0;
  };
  return tools::run_command(app, argc, argv, body,
                            [](const std::exception&) { return tools::kUsageStatus; });
}
