#include "perf/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>

#include <tutti/error.hpp>
#include <tutti/tutti.hpp>

namespace tutti::perf {
namespace {

template <typename T>
struct Named {
  std::string_view name;
  std::optional<T> value;  ///< None: nccl-tests has it, tutti does not.
};

// In the order in which nccl-tests runs them for "all".
constexpr Named<DataType> kTypes[] = {{"int8", {}},
                                      {"uint8", {}},
                                      {"int32", DataType::int32},
                                      {"uint32", {}},
                                      {"int64", DataType::int64},
                                      {"uint64", {}},
                                      {"half", {}},
                                      {"float", DataType::f32},
                                      {"double", DataType::f64},
                                      {"bfloat16", DataType::bf16},
                                      {"f8e4m3", {}},
                                      {"f8e5m2", {}}};
constexpr Named<Op> kOperators[] = {{"sum", Op::sum}, {"prod", Op::prod}, {"max", Op::max},
                                    {"min", Op::min}, {"avg", Op::avg},   {"mulsum", {}}};
constexpr Named<Collective> kOperations[] = {{"all_reduce", Collective::all_reduce},
                                             {"all_gather", Collective::all_gather},
                                             {"broadcast", Collective::broadcast},
                                             {"reduce", Collective::reduce},
                                             {"reduce_scatter", Collective::reduce_scatter},
                                             {"alltoall", Collective::all_to_all},
                                             {"alltoallv", {}},
                                             {"gather", Collective::gather},
                                             {"scatter", Collective::scatter},
                                             {"sendrecv", {}},
                                             {"hypercube", {}}};

template <typename T, std::size_t n>
std::string available(const Named<T> (&table)[n]) {
  std::string names;
  for (const auto& [name, value] : table)
    if (value) names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  return names;
}

template <typename T, std::size_t n>
T find(const Named<T> (&table)[n], std::string_view text, std::string_view what) {
  const auto found = std::find_if(std::begin(table), std::end(table),
                                  [&](const auto& e) { return e.name == text; });
  if (found != std::end(table) && found->value) return *found->value;
  if (found != std::end(table))
    throw Error(ErrorKind::unavailable, fmt::format("the {} '{}' is unavailable: this tutti has {}",
                                                    what, text, available(table)));
  throw Error(ErrorKind::usage,
              fmt::format("there is no {} '{}': use one of {}", what, text, available(table)));
}

template <typename T, std::size_t n>
std::vector<T> find_all(const Named<T> (&table)[n], std::string_view text, std::string_view what) {
  if (text != "all") return {find(table, text, what)};
  std::vector<T> all;
  for (const auto& [name, value] : table)
    if (value) all.push_back(*value);
  return all;
}

std::size_t size_option(std::string_view option, const std::string& text) {
  if (const auto size = parse_size(text)) return *size;
  throw Error(
      ErrorKind::usage,
      fmt::format("{} {}: expected a size in bytes, such as 8, 64K, 1M or 2G", option, text));
}

/// Options as CLI11 reads them, before they mean something.
struct Texts {
  std::string operation = "all_reduce", min = "32M", max = "32M", step = "1M";
  std::string op = "sum", type = "float", root = "0";
  int average = 1;
};

constexpr const char* kFooter = R"(
Prints the table of nccl-tests: time, algorithm bandwidth (bytes over time) and bus bandwidth (what each
link carries) for a call out of place and in place, and the number of wrong elements, which is exact.
Without -n each time is the mean over at least ten milliseconds of calls, back to back after one
barrier. Ranks are pinned to cores where there are enough. A launcher's ranks (RANK, WORLD_SIZE: see
tutti-run) are used where there are some; else tutti-perf starts its own.

  tutti-perf all_reduce --ranks 2 -b 8 -e 256M -f 2
  tutti-perf --limits -b 8 -e 64M -f 8)";

void declare(CLI::App& app, Options& options, Texts& texts) {
  app.add_option(
      "operation", texts.operation,
      "all_reduce, all_gather, alltoall, broadcast, gather, reduce, reduce_scatter or scatter "
      "(or with _perf)");
  app.add_option("--ranks", options.ranks, "Ranks to start")->check(CLI::Range(1, 4096));
  app.add_option("-b,--minbytes", texts.min, "Smallest size");
  app.add_option("-e,--maxbytes", texts.max, "Largest size");
  app.add_option("-i,--stepbytes", texts.step, "Step between sizes, without -f");
  app.add_option("-f,--stepfactor", options.step_factor, "Factor between sizes; 1: steps of -i")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 32));
  app.add_option("-n,--iters", options.iterations, "Calls to measure (default: ten milliseconds)")
      ->check(CLI::Range(1, 1'000'000'000));
  app.add_option("-w,--warmup_iters", options.warmup_iterations, "Calls before, of each size")
      ->check(CLI::Range(0, 1'000'000'000));
  app.add_option("-c,--check", options.checks, "How often to check results; 0: not")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("-o,--op", texts.op, "sum, prod, min, max, avg or all");
  app.add_option("-d,--datatype", texts.type, "int32, int64, float, double, bfloat16 or all");
  app.add_option("-r,--root", texts.root, "Root of broadcast and reduce, or all");
  app.add_option("-a,--average", texts.average, "Time of 0: rank 0; ranks' 1: mean, 2: min, 3: max")
      ->check(CLI::Range(0, 3));
  app.add_option("-J,--output_file", options.json_path,
                 "Write the results as JSON, in full precision");
  app.add_flag("--rotate", options.rotate,
               "Walk through -e bytes of buffer from call to call, as nccl-tests does");
  app.add_flag("--limits", options.limits,
               "Measure this machine: the least that an all_reduce of two ranks could take");
  app.add_flag("--show-limits", options.show_limits, "Add that limit to each row");
  app.add_flag(
      "--phase", options.show_phase,
      "Add the one-way time of a cache line to each row: it shows when a virtual machine's "
      "cores move");
  app.set_version_flag("--version", std::string(version()));
  app.footer(kFooter);
  for (CLI::Option* option : app.get_options())
    if (option->get_name() != "--help") option->capture_default_str();
}

void interpret(Options& options, const Texts& texts) {
  std::string_view operation = texts.operation;
  if (operation.ends_with("_perf")) operation.remove_suffix(5);
  options.what = find(kOperations, operation, "operation");
  options.ops = find_all(kOperators, texts.op, "reduction");
  options.types = find_all(kTypes, texts.type, "type");
  options.average = Average{texts.average};
  options.min_bytes = size_option("-b", texts.min);
  options.max_bytes = size_option("-e", texts.max);
  options.step_bytes = size_option("-i", texts.step);
  if (options.min_bytes > options.max_bytes)
    throw Error(ErrorKind::usage,
                fmt::format("-b {} is greater than -e {}: no size is left", texts.min, texts.max));
  if (options.min_bytes < options.max_bytes && options.step_factor == 1 && options.step_bytes == 0)
    throw Error(ErrorKind::usage, "-i 0: sizes would never reach -e; give a step or a factor (-f)");
  options.root.reset();
  if (texts.root == "all") return;
  int root = 0;
  const char* end = texts.root.data() + texts.root.size();
  const auto [stop, error] = std::from_chars(texts.root.data(), end, root);
  if (error != std::errc() || stop != end || root < 0)
    throw Error(ErrorKind::usage, fmt::format("-r {}: expected a rank or all", texts.root));
  options.root = root;
}

}  // namespace

std::string_view name_of(DataType type) noexcept {
  for (const auto& [name, value] : kTypes)
    if (value == type) return name;
  return to_string(type);
}

std::optional<std::size_t> parse_size(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  if (error != std::errc() || unit.size() > 1 || !(number >= 0)) return std::nullopt;
  if (!unit.empty()) {
    const std::size_t shift = std::string_view("kKmMgGtT").find(unit[0]);
    if (shift == std::string_view::npos) return std::nullopt;
    number = std::ldexp(number, static_cast<int>(10 * (shift / 2 + 1)));
  }
  if (number > std::ldexp(1.0, 48)) return std::nullopt;
  return static_cast<std::size_t>(number);
}

std::vector<std::size_t> sizes(const Options& options) {
  std::vector<std::size_t> result;
  std::size_t size = options.min_bytes;
  while (size <= options.max_bytes) {
    result.push_back(size);
    // nccl-tests stays at size 0 for ever when that is to be doubled.
    const std::size_t next = options.step_factor > 1
                                 ? std::max<std::size_t>(size, 1) * options.step_factor
                                 : size + options.step_bytes;
    if (next <= size) break;
    size = next;
  }
  assert(!result.empty());
  return result;
}

void require_root(const Options& options, int ranks) {
  if (options.root && *options.root >= ranks)
    throw Error(ErrorKind::usage, fmt::format("-r {}: there are {} ranks, so the last one is {}",
                                              *options.root, ranks, ranks - 1));
}

std::optional<Options> parse(int argc, const char* const* argv) {
  CLI::App app("Measures the bandwidth of collective operations.", "tutti-perf");
  Options options;
  Texts texts;
  declare(app, options, texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw Error(ErrorKind::usage, error.what());
    app.exit(error);
    return std::nullopt;
  }
  interpret(options, texts);
  return options;
}

}  // namespace tutti::perf
