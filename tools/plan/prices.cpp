// Implements tutti-plan explain, simulate and sweep, which say what calls would cost on a machine
// that is described by its costs.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include <tutti/error.hpp>

#include "collectives/algorithms/algorithms.h"
#include "collectives/planning/prices.h"
#include "collectives/planning/simulate.h"
#include "collectives/schedule/semantics.h"
#include "tools/command.h"
#include "tools/plan/commands.h"
#include "tools/plan/graph_commands.h"

namespace tutti::tools {
namespace {

/// Simulating all ranks takes time and memory in proportion to the steps of all of them.
constexpr int kMostRanks = 1024;
constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 30;
/// The largest steps of all ranks that are simulated: about a gigabyte of memory.
constexpr std::size_t kMostSteps = 4u << 20;

struct Arguments {
  std::string collective, algorithm;
  std::vector<std::string> algorithms;
  int ranks = 4, cores = 0, per_machine = 0;
  bool by_turns = false, ranks_given = false;
  std::uint64_t bytes = 1 << 20;  // for explain
  std::size_t message_bytes = 0;  // 0: not given
  std::vector<int> rank_counts{2, 4, 8};
  std::vector<std::uint64_t> sizes{1u << 10, 16u << 10, 256u << 10, 4u << 20};
  bool json = false;
  GraphArguments graph;

  std::size_t largest_message() const { return message_bytes > 0 ? message_bytes : 64u << 10; }
};

/// A call and the machines on which it is made.
struct Case {
  Collective what;
  int ranks;
  std::uint64_t bytes;
};

std::vector<int> machines_of(const Arguments& arguments, int ranks) {
  std::vector<int> machines(static_cast<std::size_t>(ranks));
  if (arguments.per_machine == 0) return machines;
  const int count = (ranks + arguments.per_machine - 1) / arguments.per_machine;
  for (int rank = 0; rank < ranks; ++rank)
    machines[static_cast<std::size_t>(rank)] =
        arguments.by_turns ? rank % count : rank / arguments.per_machine;
  return machines;
}

int cores_of(const Arguments& arguments, int ranks) {
  const int of_machine = arguments.per_machine > 0 ? std::min(arguments.per_machine, ranks) : ranks;
  return arguments.cores > 0 ? arguments.cores : of_machine;
}

SelectRequest request_of(const Arguments& arguments, const Case& call) {
  SelectRequest request{.what = call.what,
                        .bytes = call.bytes,
                        .ranks = call.ranks,
                        .cores = cores_of(arguments, call.ranks),
                        .max_message_bytes = arguments.largest_message()};
  const std::vector<int> machines = machines_of(arguments, call.ranks);
  request.spread = spread_over(machines);
  if (request.spread != Spread::one_machine) request.machines = request.groups = machines;
  return request;
}

/// Returns the predicted time in microseconds; none if the algorithm cannot serve the call or has
/// too many steps to simulate.
std::optional<double> predicted_us(std::uint32_t index, const Arguments& arguments,
                                   const Case& call) {
  const SelectRequest request = request_of(arguments, call);
  if (!can_serve(index, request)) return std::nullopt;
  CallSignature signature;
  signature.what = call.what;
  signature.count = call.bytes;
  std::vector<Program> programs;
  std::size_t steps = 0;
  for (int rank = 0; rank < call.ranks; ++rank) {
    programs.push_back(
        compile(algorithms()[index].plan({call.what, rank, call.ranks, 0, request.groups}),
                signature, arguments.largest_message()));
    if ((steps += programs.back().steps.size()) > kMostSteps) return std::nullopt;
  }
  const MachineCosts costs;
  const Cluster cluster = cluster_of(costs, machines_of(arguments, call.ranks), request.cores,
                                     costs.anywhere, 3 * arguments.largest_message());
  return static_cast<double>(simulate(programs, cluster)) / 1e6;
}

struct Row {
  std::string algorithm;
  double us;
  bool chosen;
};

std::vector<Row> rows_of(const Arguments& arguments, const Case& call) {
  std::vector<Row> rows;
  for (const std::string& name : arguments.algorithms)
    algorithm_index(name);  // refuses a wrong one
  const std::uint32_t chosen = choose(request_of(arguments, call), "").algorithm;
  for (std::uint32_t index = 0; index < algorithms().size(); ++index) {
    const std::string name(algorithms()[index].name);
    const auto& only = arguments.algorithms;
    if (!only.empty() && std::find(only.begin(), only.end(), name) == only.end()) continue;
    if (const auto us = predicted_us(index, arguments, call))
      rows.push_back({name, *us, index == chosen});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.us < b.us; });
  return rows;
}

nlohmann::ordered_json json_of(const Case& call, const Row& row) {
  return {{"collective", to_string(call.what)},
          {"algorithm", row.algorithm},
          {"ranks", call.ranks},
          {"bytes", call.bytes},
          {"predicted_us", row.us},
          {"bus_gb_per_s", bus_gb_per_s(call.what, call.ranks, call.bytes, row.us)},
          {"chosen", row.chosen}};
}

void check_ranks(int ranks) {
  if (ranks > kMostRanks)
    throw CLI::ValidationError(
        fmt::format("{} ranks: without --topology all steps of at most {} ranks are simulated",
                    ranks, kMostRanks));
}

GraphCase graph_case(const Arguments& arguments) {
  GraphCase one{.what = collective_named(arguments.collective),
                .algorithms = arguments.algorithms,
                .ranks = {},
                .sizes = arguments.sizes,
                .json = arguments.json};
  if (arguments.message_bytes > 0) one.message_bytes = arguments.message_bytes;
  return one;
}

int explain(const Arguments& arguments) {
  if (arguments.graph.given()) {
    GraphCase one = graph_case(arguments);
    if (arguments.ranks_given) one.ranks = {arguments.ranks};
    one.sizes = {arguments.bytes};
    return explain_on_graph(arguments.graph, std::move(one));
  }
  check_ranks(arguments.ranks);
  const Case call{collective_named(arguments.collective), arguments.ranks, arguments.bytes};
  const std::vector<Row> rows = rows_of(arguments, call);
  if (arguments.json) {
    auto list = nlohmann::ordered_json::array();
    for (const Row& row : rows) list.push_back(json_of(call, row));
    fmt::print("{}\n", list.dump(1));
    return 0;
  }
  fmt::print("{} of {} ranks, {} bytes: predicted with the built-in costs, whose error is {} %\n",
             to_string(call.what), call.ranks, call.bytes, MachineCosts().error_percent);
  for (const Row& row : rows)
    fmt::print("{:<20} {:>12.2f} us {:>9.3f} GB/s of bus bandwidth{}\n", row.algorithm, row.us,
               bus_gb_per_s(call.what, call.ranks, call.bytes, row.us),
               row.chosen ? "  chosen by the table of measurements" : "");
  return 0;
}

int simulate_one(Arguments arguments) {
  arguments.algorithms = {arguments.algorithm};
  algorithm_index(arguments.algorithm);  // throws for an unknown name
  if (arguments.graph.given()) {
    GraphCase one = graph_case(arguments);
    if (arguments.ranks_given) one.ranks = {arguments.ranks};
    return simulate_on_graph(arguments.graph, std::move(one));
  }
  check_ranks(arguments.ranks);
  auto list = nlohmann::ordered_json::array();
  for (const std::uint64_t bytes : arguments.sizes) {
    const Case call{collective_named(arguments.collective), arguments.ranks, bytes};
    const std::vector<Row> rows = rows_of(arguments, call);
    if (rows.empty())
      throw CLI::ValidationError(
          fmt::format("{} cannot serve {} of {} ranks, or has more than {} steps to simulate",
                      arguments.algorithm, arguments.collective, call.ranks, kMostSteps));
    if (arguments.json)
      list.push_back(json_of(call, rows[0]));
    else
      fmt::print("{} {} of {} ranks, {} bytes: {:.2f} us, {:.3f} GB/s of bus bandwidth\n",
                 to_string(call.what), rows[0].algorithm, call.ranks, call.bytes, rows[0].us,
                 bus_gb_per_s(call.what, call.ranks, call.bytes, rows[0].us));
  }
  if (arguments.json) fmt::print("{}\n", list.size() == 1 ? list[0].dump(1) : list.dump(1));
  return 0;
}

int sweep(const Arguments& arguments) {
  if (arguments.graph.given()) {
    GraphCase one = graph_case(arguments);
    one.ranks = arguments.rank_counts;
    return sweep_on_graph(arguments.graph, one);
  }
  for (const int ranks : arguments.rank_counts) check_ranks(ranks);
  const Collective what = collective_named(arguments.collective);
  auto list = nlohmann::ordered_json::array();
  if (!arguments.json)
    fmt::print("collective,algorithm,ranks,bytes,predicted_us,bus_gb_per_s,chosen\n");
  for (const int ranks : arguments.rank_counts)
    for (const std::uint64_t bytes : arguments.sizes)
      for (const Row& row : rows_of(arguments, {what, ranks, bytes})) {
        const Case call{what, ranks, bytes};
        if (arguments.json)
          list.push_back(json_of(call, row));
        else
          fmt::print("{},{},{},{},{:.3f},{:.4f},{}\n", to_string(what), row.algorithm, ranks, bytes,
                     row.us, bus_gb_per_s(call.what, call.ranks, call.bytes, row.us),
                     row.chosen ? 1 : 0);
      }
  if (arguments.json) fmt::print("{}\n", list.dump(1));
  return 0;
}

void add_machine(CLI::App& command, Arguments& arguments) {
  CLI::Option* const cores = command
                                 .add_option("--cores", arguments.cores,
                                             "Cores of a machine; by default one for each rank")
                                 ->check(CLI::Range(1, 4096));
  CLI::Option* const per_machine =
      command
          .add_option("--ranks-per-machine", arguments.per_machine,
                      "Consecutive ranks of a machine; by default all ranks are on one")
          ->check(CLI::Range(1, kMostRanks));
  command
      .add_flag("--by-turns", arguments.by_turns,
                "The ranks are dealt out to the machines by turns, as Slurm's cyclic distribution "
                "does")
      ->needs(per_machine);
  command
      .add_option("--message-bytes", arguments.message_bytes,
                  "Largest message; by default 64K, with --topology 512K")
      ->transform(as_size())
      ->check(CLI::Range(4096, 64 << 20));
  command.add_flag("--json", arguments.json, "Print JSON in place of text");
  add_graph_options(command, arguments.graph);
  // A topology says which ranks are on a machine, and has no cores.
  for (CLI::Option* const option : {cores, per_machine})
    option->excludes(command.get_option("--topology"));
}

CLI::App* add_command(CLI::App& app, Run& run, const char* name, const char* text,
                      const std::shared_ptr<Arguments>& arguments, int (*body)(const Arguments&)) {
  CLI::App* const command = app.add_subcommand(name, text);
  command->add_option("collective", arguments->collective, "all_reduce, broadcast, ...")
      ->required();
  command->callback([arguments, body, &run] {
    if (arguments->collective == "barrier") {  // It moves no bytes, whatever size is asked for.
      arguments->bytes = 0;
      arguments->sizes = {0};
    }
    run = [=] { return body(*arguments); };
  });
  return command;
}

CLI::Option* add_ranks(CLI::App& command, Arguments& arguments) {
  return command
      .add_option("-n,--ranks", arguments.ranks,
                  "Number of ranks; with --topology, by default all GPUs")
      ->capture_default_str()
      ->check(CLI::Range(2, kMostGraphRanks))
      ->each([&arguments](const std::string&) { arguments.ranks_given = true; });
}

std::vector<CLI::Validator> of_bytes() {
  return {as_size(), CLI::Range(std::uint64_t{0}, kMostBytes)};
}

}  // namespace

double bus_gb_per_s(Collective what, int ranks, std::uint64_t bytes, double us) {
  double factor = 1;
  if (what == Collective::all_reduce) factor = 2.0 * (ranks - 1) / ranks;
  const bool blocks = collectives::layout_of(what) == Layout::blocks;
  if (blocks) factor = ranks - 1;
  return us > 0 ? factor * static_cast<double>(bytes) / us / 1e3 : 0;
}

void add_explain(CLI::App& app, Run& run) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* const command = add_command(
      app, run, "explain", "Predicts what each algorithm takes for a call", arguments, explain);
  add_ranks(*command, *arguments);
  command
      ->add_option("-s,--size", arguments->bytes, "Bytes of the vector, or of a block, as in 16M")
      ->capture_default_str()
      ->transform(as_size())
      ->check(CLI::Range(std::uint64_t{0}, kMostBytes));
  add_machine(*command, *arguments);
}

void add_simulate(CLI::App& app, Run& run) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* const command =
      add_command(app, run, "simulate", "Predicts what one algorithm takes for a call", arguments,
                  [](const Arguments& given) { return simulate_one(given); });
  arguments->sizes = {1 << 20};
  command->add_option("algorithm", arguments->algorithm, "By name")->required();
  add_ranks(*command, *arguments);
  add_list(*command, "-s,--size", arguments->sizes,
           "Bytes of the vector, or of a block, as in 16M or 1K,1M", of_bytes());
  add_machine(*command, *arguments);
}

void add_sweep(CLI::App& app, Run& run) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* const command =
      add_command(app, run, "sweep", "Predicts many calls, as CSV", arguments, sweep);
  add_list(*command, "-n,--ranks", arguments->rank_counts, "Numbers of ranks, as in 2,4,8",
           {CLI::Range(2, kMostGraphRanks)});
  add_list(*command, "-s,--sizes", arguments->sizes, "Bytes, as in 1K,1M", of_bytes());
  add_list(*command, "-a,--algorithms", arguments->algorithms, "By name; by default all");
  add_machine(*command, *arguments);
}

}  // namespace tutti::tools
