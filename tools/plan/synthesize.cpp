// Implements tutti-plan synthesize, which writes schedules for the graph of a topology.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include <tutti/error.hpp>

#include "collectives/algorithms/algorithms.h"
#include "collectives/formats/schedule_file.h"
#include "collectives/schedule/semantics.h"
#include "collectives/synthesis/graph_price.h"
#include "collectives/synthesis/synthesize.h"
#include "common/text.h"
#include "tools/command.h"
#include "tools/plan/commands.h"
#include "tools/plan/topology.h"
#include "topology/print.h"
#include "topology/search/rings.h"

namespace tutti::tools {
namespace {

struct Arguments {
  std::string collective, path, name;
  int root = 0, trees = 8;
  std::uint64_t bytes = 256u << 20;
  bool prices = false, json = false;
};

struct Row {
  std::string name;
  GraphPrice price;
};

std::vector<int> in_order(int count) {
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// Returns the prices of tutti's algorithms with the GPUs in the order of the file, and with those
/// of the ring that has the highest bandwidth.
std::vector<Row> algorithm_prices(const Arguments& arguments, Collective what, const Paths& paths) {
  std::vector<std::pair<std::string, std::vector<int>>> orders{{"", in_order(paths.gpus())}};
  try {
    StepBudget budget("the search for rings", kRingSteps);
    const RingPlan rings = find_rings(paths, {}, budget);
    if (!rings.rings.empty()) orders.emplace_back(" in the order of a ring", rings.rings[0].gpus);
  } catch (const Error& error) {
    // Prices in the order of the file are there without rings, too.
    if (error.kind() != ErrorKind::unavailable) throw;
  }
  std::vector<Row> rows;
  for (const Algorithm& algorithm : algorithms()) {
    if (!algorithm.knows(what, paths.gpus())) continue;
    for (const auto& [suffix, gpus] : orders) {
      const auto at = std::find(gpus.begin(), gpus.end(), arguments.root);
      const int root = collectives::has_root(what) ? static_cast<int>(at - gpus.begin()) : 0;
      std::vector<Schedule> schedules;
      for (int rank = 0; rank < paths.gpus(); ++rank)
        schedules.push_back(algorithm.plan({what, rank, paths.gpus(), root}));
      rows.push_back(
          {std::string(algorithm.name) + suffix,
           price_on_graph(schedules, paths, gpus, static_cast<double>(arguments.bytes))});
    }
  }
  return rows;
}

void print_prices(std::FILE* to, const Arguments& arguments, const std::vector<Row>& rows,
                  const Synthesis& synthesis) {
  const double own = rows[0].price.us();
  fmt::print(to,
             "{} of {} GPUs, {} bytes: {} trees of each root, {:.4g} of at most {:.4g} GB/s from "
             "each root at once\n",
             arguments.collective, synthesis.schedules.size(), arguments.bytes,
             synthesis.forest.trees_of_root, synthesis.forest.gb_per_s,
             synthesis.forest.bound_gb_per_s);
  for (const Row& row : rows)
    fmt::print(to, "{:<42} {:>12.2f} us, busiest link {:>12.2f} us, {:>6.3f} times synthesized\n",
               row.name, row.price.us(), row.price.busiest_us, row.price.us() / own);
}

void print_json(const Arguments& arguments, const std::vector<Row>& rows,
                const Synthesis& synthesis) {
  auto list = nlohmann::ordered_json::array();
  for (const Row& row : rows)
    list.push_back({{"algorithm", row.name},
                    {"us", row.price.us()},
                    {"busiest_us", row.price.busiest_us},
                    {"chain_us", row.price.chain_us}});
  const nlohmann::ordered_json all{{"collective", arguments.collective},
                                   {"gpus", synthesis.schedules.size()},
                                   {"bytes", arguments.bytes},
                                   {"trees_of_root", synthesis.forest.trees_of_root},
                                   {"gb_per_s", synthesis.forest.gb_per_s},
                                   {"bound_gb_per_s", synthesis.forest.bound_gb_per_s},
                                   {"prices", list}};
  fmt::print("{}\n", all.dump(1));
}

int run_synthesis(const Arguments& arguments) {
  const Collective what = collective_named(arguments.collective);
  if (is_built_in_algorithm(arguments.name))
    throw CLI::ValidationError(
        fmt::format("--name: tutti uses {} itself, so that no call could name it", arguments.name));
  if (arguments.root != 0 && !collectives::has_root(what))
    throw CLI::ValidationError(fmt::format("--root: {} has no root", to_string(what)));
  const auto [fabric, graph, title] = topology_of(arguments.path);
  if (!title.empty()) fmt::print(stderr, "{}\n", on_one_line(title));
  const Paths paths(fabric.nodes == 1 ? fabric.node : expand(fabric));
  StepBudget budget("the search for trees", kForestSteps);
  const Synthesis synthesis = synthesize(paths, {what, arguments.root, arguments.trees}, budget);
  std::vector<Row> rows{
      {"synthesized", price_on_graph(synthesis.schedules, paths, in_order(paths.gpus()),
                                     static_cast<double>(arguments.bytes))}};
  for (Row& row : algorithm_prices(arguments, what, paths)) rows.push_back(std::move(row));
  std::stable_sort(rows.begin() + 1, rows.end(),
                   [](const Row& a, const Row& b) { return a.price.us() < b.price.us(); });
  if (arguments.prices) {
    if (arguments.json)
      print_json(arguments, rows, synthesis);
    else
      print_prices(stdout, arguments, rows, synthesis);
    return 0;
  }
  ScheduleFile file;
  file.name = arguments.name.empty() ? graph + "_" + arguments.collective : arguments.name;
  file.schedules = synthesis.schedules;
  fmt::print("{}", write_schedules(file));
  std::fflush(stdout);
  print_prices(stderr, arguments, rows, synthesis);
  return prove(synthesis.schedules, 2);
}

}  // namespace

void add_synthesize(CLI::App& app, Run& run) {
  CLI::App* const command = app.add_subcommand(
      "synthesize",
      "Writes schedules for the graph of a topology, as tutti's JSON, and proves them");
  const auto arguments = std::make_shared<Arguments>();
  command
      ->add_option("collective", arguments->collective,
                   "all_gather, reduce_scatter, all_reduce, broadcast or reduce")
      ->required();
  command->add_option(
      "--topology", arguments->path,
      "NCCL's or RCCL's topology XML, or a fabric's JSON (docs/planning.md); without it "
      "TUTTI_TOPOLOGY_FILE, or else this machine");
  command->add_option("--root", arguments->root, "The GPU that is the root")->capture_default_str();
  command->add_option("--trees", arguments->trees, "The most trees of each root")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command->add_option(
      "--name", arguments->name,
      "By which calls name it; by default that of the file (or \"here\") and the collective");
  command
      ->add_option("-s,--size", arguments->bytes,
                   "Bytes of the vector, or of all blocks, for which it is priced")
      ->capture_default_str()
      ->transform(as_size());
  CLI::Option* const prices = command->add_flag(
      "--prices", arguments->prices,
      "Print no schedules, but their price on the graph beside those of tutti's algorithms");
  command->add_flag("--json", arguments->json, "With --prices: as one JSON object")->needs(prices);
  command->callback([arguments, &run] { run = [arguments] { return run_synthesis(*arguments); }; });
}

}  // namespace tutti::tools
