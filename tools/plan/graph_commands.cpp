#include "tools/plan/graph_commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include <tutti/error.hpp>

#include "collectives/planning/graph_prices.h"
#include "collectives/planning/select.h"
#include "common/text.h"
#include "tools/command.h"
#include "tools/plan/commands.h"
#include "tools/plan/line_chart.h"
#include "topology/topology_file.h"

namespace tutti::tools {
namespace {

using Json = nlohmann::ordered_json;

/// Says on a terminal what is being done; the line goes when it is done.
class Progress {
 public:
  Progress() : shown_(isatty(STDERR_FILENO) == 1) {}
  ~Progress() {
    if (shown_) fmt::print(stderr, "\r{:60}\r", "");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void operator()(const std::string& call, const char* what, double part) const {
    if (!shown_) return;
    fmt::print(stderr, "\r{:60.60}", fmt::format("{}: {} {:3.0f} %", call, what, 100 * part));
    std::fflush(stderr);
  }

 private:
  bool shown_;
};

/// One prediction, or the reason why there is none.
struct Predicted {
  std::string algorithm;
  int ranks = 0;
  std::uint64_t bytes = 0;
  GraphPrice price = {};
  std::string refused = {};

  double us() const { return static_cast<double>(price.time) / 1e6; }
};

// Names of a file may be no UTF-8.
std::string text_of(const Json& rows) {
  return rows.dump(1, ' ', false, Json::error_handler_t::replace);
}

struct Fabrics {
  explicit Fabrics(const GraphArguments& arguments)
      : fabric(read(arguments)), routes(fabric), costs(arguments.costs) {
    costs.step = static_cast<Picoseconds>(arguments.step_us * 1e6);
    costs.node_latency = static_cast<Picoseconds>(arguments.node_latency_us * 1e6);
    costs.network_latency = static_cast<Picoseconds>(arguments.network_latency_us * 1e6);
  }

  static Fabric read(const GraphArguments& arguments) {
    Fabric fabric = read_topology_file(arguments.topology);
    if (arguments.nodes > 0) fabric.set_nodes(arguments.nodes);
    return fabric;
  }

  std::string text(const GraphArguments& arguments) const {
    return fmt::format("{}: {} nodes of {} GPUs, {} leaves, {} spines, oversubscription {:g}",
                       escape_controls(arguments.topology), fabric.nodes, routes.gpus(),
                       fabric.nodes > 1 ? fabric.leaves() : 0,
                       fabric.nodes > 1 && fabric.leaves() > 1 ? fabric.spines : 0,
                       fabric.oversubscription);
  }

  Fabric fabric;
  Routes routes;
  GraphCosts costs;
};

std::vector<const Algorithm*> algorithms_of(const GraphCase& one, int ranks) {
  std::vector<const Algorithm*> list;
  for (const std::string& name : one.algorithms) algorithm_index(name);  // refuses a wrong one
  for (const Algorithm& algorithm : algorithms()) {
    const bool named = std::find(one.algorithms.begin(), one.algorithms.end(), algorithm.name) !=
                       one.algorithms.end();
    if (!algorithm.knows(one.what, ranks)) {
      if (named && one.algorithms.size() == 1)
        throw CLI::ValidationError(fmt::format("{} cannot serve {} of {} ranks", algorithm.name,
                                               to_string(one.what), ranks));
      continue;
    }
    if (named || one.algorithms.empty()) list.push_back(&algorithm);
  }
  return list;
}

// Predicts a call. What cannot be simulated is `refused` where it is one of several, and an error
// where it is all that was asked for.
Predicted predict(const Fabrics& fabrics, const GraphCase& one, const Algorithm& algorithm,
                  int ranks, std::uint64_t bytes, bool may_be_refused, int recorded = 0) {
  Predicted found{std::string(algorithm.name), ranks, bytes};
  const Progress progress;
  const std::string name = fmt::format("{} of {} ranks, {} bytes", algorithm.name, ranks, bytes);
  GraphCall call{.algorithm = &algorithm,
                 .what = one.what,
                 .ranks = ranks,
                 .bytes = bytes,
                 .message_bytes = one.message_bytes,
                 .recorded_ranks = recorded};
  call.progress = [&](const char* what, double part) { progress(name, what, part); };
  try {
    found.price = price_on_graph(call, fabrics.routes, fabrics.costs);
  } catch (const Error& error) {
    if (!may_be_refused || error.kind() != ErrorKind::unavailable) throw;
    found.refused = error.what();
  }
  return found;
}

void fill_in(GraphCase& one, const Fabrics& fabrics) {
  if (one.ranks.empty())
    one.ranks = {static_cast<int>(std::min<std::int64_t>(fabrics.routes.ranks(), kMostGraphRanks))};
}

double algorithm_gb_per_s(const Predicted& one) {
  return one.us() > 0 ? static_cast<double>(one.bytes) / one.us() / 1e3 : 0;
}

Json json_of(const GraphCase& of, const Predicted& one) {
  Json object{{"collective", to_string(of.what)},
              {"algorithm", one.algorithm},
              {"ranks", one.ranks},
              {"bytes", one.bytes}};
  if (!one.refused.empty()) {
    object["unavailable"] = one.refused;
    return object;
  }
  const GraphPrice& price = one.price;
  auto links = Json::array();
  for (const KindLoad& load : price.loads)
    links.push_back({{"kind", to_string(load.kind)},
                     {"bytes", load.bytes},
                     {"most_loaded", load.link},
                     {"most_bytes", load.most_bytes},
                     {"busy", load.busy}});
  object.update({{"predicted_us", one.us()},
                 {"algorithm_gb_per_s", algorithm_gb_per_s(one)},
                 {"bus_gb_per_s", bus_gb_per_s(of.what, one.ranks, one.bytes, one.us())},
                 {"at_least_us", static_cast<double>(price.at_least) / 1e6},
                 {"accuracy", price.exact ? "exact" : "approximate"},
                 {"reasons", price.reasons},
                 {"bottleneck", price.bottleneck},
                 {"parts_us",
                  {{"steps", price.parts.steps / 1e6},
                   {"copying_and_reducing", price.parts.bytes / 1e6},
                   {"transfer", price.parts.transfer / 1e6},
                   {"latency", price.parts.latency / 1e6}}},
                 {"links", links},
                 {"classes", price.classes},
                 {"events", price.events},
                 {"repeated_steps", price.repeated_steps}});
  return object;
}

void print_head() {
  fmt::print("{:<20} {:>8} {:>13} {:>14} {:>12} {:>9} {:>9}  {}\n", "algorithm", "ranks", "bytes",
             "time us", "at least us", "alg GB/s", "bus GB/s", "accuracy");
}

void print_row(const GraphCase& of, const Predicted& one) {
  if (!one.refused.empty())
    return fmt::print("{:<20} {:>8} {:>13} not simulated: {}\n", one.algorithm, one.ranks,
                      one.bytes, one.refused);
  fmt::print("{:<20} {:>8} {:>13} {:>14.3f} {:>12.3f} {:>9.3f} {:>9.3f}  {}\n", one.algorithm,
             one.ranks, one.bytes, one.us(), static_cast<double>(one.price.at_least) / 1e6,
             algorithm_gb_per_s(one), bus_gb_per_s(of.what, one.ranks, one.bytes, one.us()),
             one.price.exact ? "exact" : "approximate");
}

void print_details(const Predicted& one) {
  const GraphPrice& price = one.price;
  fmt::print("\n{} bytes: the bottleneck is {}\n", one.bytes, escape_controls(price.bottleneck));
  fmt::print(
      "on the chain that ends last: steps {:.3f} us, copying and reducing {:.3f} us, bytes on "
      "links {:.3f} us, latency {:.3f} us\n",
      price.parts.steps / 1e6, price.parts.bytes / 1e6, price.parts.transfer / 1e6,
      price.parts.latency / 1e6);
  for (const KindLoad& load : price.loads)
    fmt::print(
        "{:<8} links carry {:.4g} bytes; the busiest one is busy {:.1f} % of the time with "
        "{:.4g} bytes: {}\n",
        to_string(load.kind), load.bytes, 100 * load.busy, load.most_bytes,
        escape_controls(load.link));
  fmt::print(
      "{} ranks were simulated, each for all of its class; {} events, {} steps that repeat "
      "others left out\n",
      price.classes, price.events, price.repeated_steps);
  for (const std::string& reason : price.reasons) fmt::print("not exact: {}\n", reason);
}

/// A file that the user has named for a result, or none. It is opened before the result is
/// computed, which may take a minute. Throws `usage` where it cannot be written.
class ResultFile {
 public:
  explicit ResultFile(const std::string& path) : path_(path) {
    if (path.empty()) return;
    file_.open(path);
    check();
  }
  bool wanted() const { return !path_.empty(); }
  void write(const std::string& text) {
    file_ << text;
    file_.close();
    check();
  }

 private:
  void check() const {
    if (!file_)
      throw Error(ErrorKind::usage, fmt::format("cannot write {}", escape_controls(path_)));
  }

  std::string path_;
  std::ofstream file_;
};

std::string name_of(const StepSpan& span) {
  std::string name;
  const auto add = [&](const char* verb) {
    name += (name.empty() ? "" : ", ") + std::string(verb);
  };
  if (span.receives > 0) add("receive");
  if (span.inputs > 1) add("reduce");
  if (span.sends > 0) add("send");
  return name.empty() ? "copy" : name;
}

/// Returns the timeline for Perfetto and chrome://tracing: a process for each rank, a thread for
/// each lane.
std::string timeline(const Predicted& one) {
  auto events = Json::array();
  for (int rank = 0; !one.price.spans.empty() && rank <= one.price.spans.back().rank; ++rank)
    events.push_back({{"ph", "M"},
                      {"name", "process_name"},
                      {"pid", rank},
                      {"args", {{"name", fmt::format("rank {}", rank)}}}});
  for (const auto& [rank, span] : one.price.spans)
    events.push_back(
        {{"ph", "X"},
         {"name", name_of(span)},
         {"pid", rank},
         {"tid", span.lane},
         {"ts", static_cast<double>(span.begin) / 1e6},
         {"dur", static_cast<double>(span.end - span.begin) / 1e6},
         {"args", {{"bytes", span.bytes}, {"piece", span.piece}, {"round", span.round}}}});
  return text_of(Json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}}) + "\n";
}

LineChart chart_of(const GraphCase& of, const std::vector<Predicted>& list) {
  const bool by_ranks = of.ranks.size() > 1;
  LineChart chart;
  chart.bytes = !by_ranks;
  chart.x_label = by_ranks ? "ranks" : "bytes";
  chart.y_label = "predicted time in us";
  chart.title = fmt::format("{} of {}", to_string(of.what),
                            by_ranks ? fmt::format("{} bytes", of.sizes.front())
                                     : fmt::format("{} ranks", of.ranks.front()));
  for (const Predicted& one : list) {
    const double x = by_ranks ? one.ranks : static_cast<double>(one.bytes);
    if (!one.refused.empty() || x <= 0 || one.us() <= 0) continue;
    const std::string label = by_ranks && of.sizes.size() > 1
                                  ? fmt::format("{} {}", one.algorithm, one.bytes)
                                  : one.algorithm;
    auto curve = std::find_if(chart.curves.begin(), chart.curves.end(),
                              [&](const Curve& known) { return known.label == label; });
    if (curve == chart.curves.end())
      curve = chart.curves.insert(curve, Curve{.label = label, .x = {}, .y = {}});
    curve->x.push_back(x);
    curve->y.push_back(one.us());
  }
  return chart;
}

}  // namespace

void add_graph_options(CLI::App& command, GraphArguments& arguments) {
  CLI::Option* const topology = command.add_option(
      "--topology", arguments.topology,
      "A fabric's JSON, or NCCL's topology XML: times on its graph, for GPUs (docs/planning.md)");
  const auto real = [&](const char* name, double& value, const char* text, double least,
                        double most) {
    command.add_option(name, value, text)
        ->capture_default_str()
        ->needs(topology)
        ->check(real_range(least, most));
  };
  command
      .add_option("--nodes", arguments.nodes, "Nodes of the fabric, in place of the file's number")
      ->needs(topology)
      ->check(CLI::Range(1, kMostNodes));
  real("--step-us", arguments.step_us, "What a step costs beside its bytes", 0, 1e6);
  real("--node-latency-us", arguments.node_latency_us, "Latency of a message within a node", 0,
       1e6);
  real("--network-latency-us", arguments.network_latency_us, "Latency of a message between nodes",
       0, 1e6);
  real("--copy-gb-per-s", arguments.costs.copy_gb_per_s,
       "What a lane copies in 10^9 bytes a second", 1e-3, 1e6);
  real("--reduce-gb-per-s", arguments.costs.reduce_gb_per_s, "What a lane adds to it", 1e-3, 1e6);
  command.add_option("--window", arguments.costs.window, "Messages that a channel holds")
      ->capture_default_str()
      ->needs(topology)
      ->check(CLI::Range(2, 64));
  if (command.get_name() == "explain") return;
  command.add_option("--svg", arguments.svg, "Write a picture of the times to this file")
      ->needs(topology);
  if (command.get_name() != "simulate") return;
  command
      .add_option(
          "--trace", arguments.trace,
          "Write a timeline of the first ranks for Perfetto to this file (the largest size)")
      ->needs(topology);
  command.add_option("--trace-ranks", arguments.trace_ranks, "Ranks of the timeline")
      ->capture_default_str()
      ->needs(topology)
      ->check(CLI::Range(1, 1024));
}

int explain_on_graph(const GraphArguments& arguments, GraphCase one) {
  const Fabrics fabrics(arguments);
  fill_in(one, fabrics);
  std::vector<Predicted> list;
  for (const Algorithm* algorithm : algorithms_of(one, one.ranks[0]))
    list.push_back(predict(fabrics, one, *algorithm, one.ranks[0], one.sizes[0], true));
  std::stable_sort(list.begin(), list.end(), [](const Predicted& a, const Predicted& b) {
    return std::pair(!a.refused.empty(), a.price.time) <
           std::pair(!b.refused.empty(), b.price.time);
  });
  if (one.json) {
    auto rows = Json::array();
    for (const Predicted& row : list) rows.push_back(json_of(one, row));
    fmt::print("{}\n", text_of(rows));
    return 0;
  }
  fmt::print("{} on {}\n", to_string(one.what), fabrics.text(arguments));
  print_head();
  for (const Predicted& row : list) {
    print_row(one, row);
    if (row.refused.empty()) fmt::print("{:<20} {}\n", "", escape_controls(row.price.bottleneck));
  }
  return 0;
}

int simulate_on_graph(const GraphArguments& arguments, GraphCase one) {
  const Fabrics fabrics(arguments);
  fill_in(one, fabrics);
  const Algorithm& algorithm = *algorithms_of(one, one.ranks[0]).front();
  std::sort(one.sizes.begin(), one.sizes.end());
  ResultFile svg(arguments.svg), trace(arguments.trace);
  std::vector<Predicted> list;
  for (const std::uint64_t bytes : one.sizes) {
    const bool traced = trace.wanted() && bytes == one.sizes.back();
    list.push_back(predict(fabrics, one, algorithm, one.ranks[0], bytes, false,
                           traced ? arguments.trace_ranks : 0));
  }
  if (svg.wanted()) svg.write(to_svg(chart_of(one, list)));
  if (trace.wanted()) trace.write(timeline(list.back()));
  if (one.json) {
    auto rows = Json::array();
    for (const Predicted& row : list) rows.push_back(json_of(one, row));
    fmt::print("{}\n", text_of(rows.size() == 1 ? rows[0] : rows));
    return 0;
  }
  fmt::print("{} on {}\n", to_string(one.what), fabrics.text(arguments));
  print_head();
  for (const Predicted& row : list) print_row(one, row);
  print_details(list.back());
  return 0;
}

int sweep_on_graph(const GraphArguments& arguments, const GraphCase& one) {
  const Fabrics fabrics(arguments);
  for (const int ranks : one.ranks)
    if (ranks > fabrics.routes.ranks())
      throw CLI::ValidationError(
          fmt::format("{} ranks, but the fabric has {} GPUs", ranks, fabrics.routes.ranks()));
  ResultFile svg(arguments.svg);
  std::vector<Predicted> list;
  auto rows = Json::array();
  if (!one.json)
    fmt::print("collective,algorithm,ranks,bytes,predicted_us,bus_gb_per_s,at_least_us,accuracy\n");
  for (const int ranks : one.ranks)
    for (const std::uint64_t bytes : one.sizes)
      for (const Algorithm* algorithm : algorithms_of(one, ranks)) {
        const Predicted& row =
            list.emplace_back(predict(fabrics, one, *algorithm, ranks, bytes, true));
        if (one.json) rows.push_back(json_of(one, row));
        if (!row.refused.empty())
          fmt::print(stderr, "tutti-plan: {} of {} ranks, {} bytes: not simulated: {}\n",
                     row.algorithm, ranks, bytes, row.refused);
        if (one.json || !row.refused.empty()) continue;
        fmt::print("{},{},{},{},{:.3f},{:.4f},{:.3f},{}\n", to_string(one.what), row.algorithm,
                   ranks, bytes, row.us(), bus_gb_per_s(one.what, ranks, bytes, row.us()),
                   static_cast<double>(row.price.at_least) / 1e6,
                   row.price.exact ? "exact" : "approximate");
        std::fflush(stdout);
      }
  if (one.json) fmt::print("{}\n", text_of(rows));
  if (svg.wanted()) svg.write(to_svg(chart_of(one, list)));
  return 0;
}

}  // namespace tutti::tools
