// tutti-info: shows the version of this build, its configuration on this machine, and the machine.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/tutti.hpp>

#include "collectives/planning/tuning_file.h"
#include "common/address.h"
#include "common/build_info.h"
#include "common/clock.h"
#include "common/cpus.h"
#include "common/secret.h"
#include "common/settings.h"
#include "info/topology.h"
#include "info/transports.h"
#include "net/tcp_socket.h"
#include "runtime/membership/gpus.h"
#include "runtime/membership/setup.h"
#include "runtime/schedule_files.h"
#include "tools/command.h"
#include "topology/discover.h"
#include "topology/placement.h"
#include "topology/print.h"
#include "topology/print_gpus.h"
#include "topology/topology_file.h"
#include "transport/registry.h"

namespace {

using tutti::Setting;

constexpr const char* kFooter = R"(Examples:
  tutti-info                                what this build is
  tutti-info --config                       every knob: its value, where that came from, its range
  TUTTI_TIMEOUT_MS=5000 tutti-info --config the same, to see what a variable changes
                                            (status 1 where a name or a file is wrong)
  tutti-info --config --json                the same for scripts
  tutti-info --transports                   what this machine has to move messages with, and what it lacks
  tutti-info --topology -n 4                the machine, and which of its cores 4 ranks would get
  tutti-info --topology --dot | dot -Tsvg   the machine as a picture
  HWLOC_XMLFILE=node.xml tutti-info --topology -n 8   another machine, as lstopo wrote it down

Values come from the defaults, then the file that TUTTI_CONFIG_FILE names, then TUTTI_ variables. The exit
status is 1 where one of them is wrong, with the reason on standard error, and 2 for wrong arguments.)";

std::vector<Setting> read_settings() { return tutti::list_settings(tutti::Config::from_env()); }

/// Formats rows of equally many cells as columns. The last column is not padded.
std::string align(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i)
      text += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += row.back() + "\n";
  }
  return text;
}

std::string as_table(const std::vector<Setting>& settings) {
  std::vector<std::vector<std::string>> rows{
      {"variable", "value", "source", "default", "range", "agree", "meaning"}};
  const auto shown = [](const std::string& value) { return value.empty() ? "-" : value; };
  for (const Setting& s : settings)
    rows.push_back({s.variable, shown(s.value), s.source, shown(s.default_value), s.range,
                    s.agree ? "yes" : "", s.sentence});
  return align(rows) + "\nagree: ranks refuse to start together when their values differ.\n";
}

nlohmann::ordered_json as_json(const std::vector<Setting>& settings) {
  auto list = nlohmann::ordered_json::array();
  for (const Setting& s : settings)
    list.push_back({{"name", s.name},
                    {"variable", s.variable},
                    {"value", s.value},
                    {"source", s.source},
                    {"default", s.default_value},
                    {"range", s.range},
                    {"agree", s.agree},
                    {"meaning", s.sentence}});
  return list;
}

struct Arguments {
  bool config = false, json = false, topology = false, transports = false, dot = false;
  int ranks = 1;
  std::string bind = "auto", sys;

  tutti::tools::TopologyReport look() const { return tutti::tools::look(ranks, bind, sys); }
  std::vector<tutti::tools::TransportReport> look_at_transports() const {
    return tutti::tools::look_at_transports(tutti::Config::from_env());
  }
};

void print_json(const Arguments& arguments) {
  nlohmann::ordered_json out{{"version", tutti::version()},
                             {"compiler", TUTTI_COMPILER},
                             {"build_type", TUTTI_BUILD_TYPE}};
  if (arguments.config) out["config"] = as_json(read_settings());
  if (arguments.transports) out["transports"] = as_json(arguments.look_at_transports());
  if (arguments.topology) out["topology"] = as_json(arguments.look());
  // A path may contain bytes that are not UTF-8.
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_text(const Arguments& arguments) {
  std::string text;
  if (arguments.config) text += "\n" + as_table(read_settings());
  if (arguments.transports) text += "\n" + as_text(arguments.look_at_transports());
  if (arguments.topology) text += "\n" + as_text(arguments.look());
  fmt::print("tutti {}\ncompiler    {}\nbuild type  {}\n{}", tutti::version(), TUTTI_COMPILER,
             TUTTI_BUILD_TYPE, text);
}

/// Throws `usage` if a rank of this machine may not use one of the cpus that the list gives it.
void check_binding(const std::string& bind) {
  const auto cpus = tutti::parse_cpus_of_ranks(bind);
  if (!cpus) return;  // none and auto
  const tutti::Machine machine = tutti::discover();
  for (std::size_t rank = 0; rank < cpus->size(); ++rank)
    tutti::check_usable(machine, (*cpus)[rank], static_cast<int>(rank));
}

/// Throws `usage` if the host of the store has an unknown name, or if its file cannot be opened or
/// made. It is neither opened nor made, since a job may be using it.
void check_store(const std::string& store) {
  constexpr std::string_view kFile = "file://", kTcp = "tcp://";
  if (store.starts_with(kTcp)) {
    const auto address = tutti::parse_socket_address(store.substr(kTcp.size()));
    const auto found =
        tutti::net::find_places(*address, tutti::SteadyClock().now() + std::chrono::seconds(5));
    if (found.places.empty()) throw tutti::Error(tutti::ErrorKind::usage, found.why_not);
  }
  if (!store.starts_with(kFile)) return;
  const std::filesystem::path path(store.substr(kFile.size()));
  if (::access(path.c_str(), R_OK | W_OK) == 0) return;
  if (errno == ENOENT && ::access(path.parent_path().c_str(), W_OK | X_OK) == 0) return;
  throw tutti::Error(tutti::ErrorKind::usage,
                     fmt::format("{}: no store can be there: {}", store, std::strerror(errno)));
}

/// Throws the error of names that do not exist, and of files that are missing or wrong, with which
/// a start refuses them where it needs them.
void check_names_and_files(const tutti::Config& config) {
  const auto checked = [](const char* variable, auto&& check) {
    try {
      check();
    } catch (const tutti::Error& error) {
      const std::string what = error.what();
      if (what.find(variable) != std::string::npos) throw;
      throw tutti::Error(error.kind(), fmt::format("{}: {}", variable, what));
    }
  };
  tutti::check_settings(config);
  checked("TUTTI_TRANSPORTS", [&] { tutti::parse_transports(config.transports); });
  checked(config.secret.empty() ? "TUTTI_SECRET_FILE" : "TUTTI_SECRET",
          [&] { tutti::configured_secret(config); });
  checked("TUTTI_STORE", [&] { check_store(config.store); });
  checked("TUTTI_BIND", [&] { check_binding(config.bind); });
  checked("TUTTI_DEVICE", [&] { tutti::open_gpu(config, 0); });
  checked("TUTTI_SCHEDULES", [&] { tutti::ScheduleFiles{config.schedules}; });
  if (!config.topology_file.empty())
    checked("TUTTI_TOPOLOGY_FILE", [&] { tutti::read_topology_file(config.topology_file); });
  if (config.tuning_file != "auto" && config.tuning_file != "none")
    checked("TUTTI_TUNING_FILE",
            [&] { tutti::read_tuning_file(config.tuning_file, tutti::this_machine()); });
}

void print(const Arguments& arguments) {
  if (arguments.dot) {
    const tutti::tools::TopologyReport report = arguments.look();
    return fmt::print("{}", to_dot(report.machine, report.gpus.value_or(tutti::MachineGpus{})));
  }
  arguments.json ? print_json(arguments) : print_text(arguments);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Says what this build of tutti is, how it is configured here, and what the machine is like.",
      "tutti-info");
  Arguments arguments;
  app.add_flag("--config", arguments.config, "Every knob, its value and where that came from");
  auto* topology = app.add_flag(
      "--topology", arguments.topology,
      "Packages, memory, caches, cores, GPUs and networks, and what limits this process");
  app.add_flag(
      "--transports", arguments.transports,
      "Each way to move messages: its latency, rate and memory, or why it cannot be used here");
  app.add_option("-n,--ranks", arguments.ranks,
                 "With --topology: the cpus and links of so many ranks")
      ->needs(topology)
      ->check(CLI::Range(1, 4096));
  app.add_option("--bind", arguments.bind, "With --topology: as tutti-run's")
      ->capture_default_str()
      ->envname("TUTTI_BIND");
  app.add_option("--sys", arguments.sys,
                 "With --topology: look for GPUs and network interfaces in this copy of /sys, too")
      ->needs(topology)
      ->check(CLI::ExistingDirectory);
  auto* json = app.add_flag("--json", arguments.json, "As JSON");
  app.add_flag("--dot", arguments.dot, "With --topology: a picture, in Graphviz's language")
      ->needs(topology)
      ->excludes(json);
  app.set_version_flag("--version", std::string(tutti::version()));
  app.footer(kFooter);
  const auto body = [&] {
    print(arguments);
    if (arguments.config) check_names_and_files(tutti::Config::from_env());
    return 0;
  };
  return tutti::tools::run_command(app, argc, argv, body, [](const std::exception&) { return 1; });
}
