#include "perf/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include <tutti/error.hpp>
#include <tutti/tutti.hpp>

#include "common/text.h"
#include "perf/environment.h"

namespace tutti::perf {
namespace {

template <typename T>
struct Named {
  std::string_view name;
  T value;
};

// The order in which nccl-tests runs them for "all".
constexpr Named<DataType> kTypes[] = {
    {"int8", DataType::int8},     {"uint8", DataType::uint8},   {"int32", DataType::int32},
    {"uint32", DataType::uint32}, {"int64", DataType::int64},   {"uint64", DataType::uint64},
    {"half", DataType::f16},      {"float", DataType::f32},     {"double", DataType::f64},
    {"bfloat16", DataType::bf16}, {"f8e4m3", DataType::f8e4m3}, {"f8e5m2", DataType::f8e5m2}};
constexpr Named<Op> kOperators[] = {{"sum", Op::sum}, {"prod", Op::prod},
                                    {"max", Op::max}, {"min", Op::min},
                                    {"avg", Op::avg}, {"mulsum", Op::premul_sum}};
constexpr Named<Operation> kOperations[] = {{"all_reduce", Operation::all_reduce},
                                            {"all_gather", Operation::all_gather},
                                            {"broadcast", Operation::broadcast},
                                            {"reduce", Operation::reduce},
                                            {"reduce_scatter", Operation::reduce_scatter},
                                            {"alltoall", Operation::alltoall},
                                            {"alltoallv", Operation::alltoallv},
                                            {"gather", Operation::gather},
                                            {"scatter", Operation::scatter},
                                            {"sendrecv", Operation::sendrecv},
                                            {"hypercube", Operation::hypercube}};

template <typename T, std::size_t n>
std::string available(const Named<T> (&table)[n]) {
  std::string names;
  for (const auto& [name, value] : table)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  return names;
}

template <typename T, std::size_t n>
T find(const Named<T> (&table)[n], std::string_view text, std::string_view what) {
  const auto found = std::find_if(std::begin(table), std::end(table),
                                  [&](const auto& e) { return e.name == text; });
  if (found != std::end(table)) return found->value;
  throw Error(ErrorKind::usage,
              fmt::format("there is no {} '{}': use one of {}", what, text, available(table)));
}

template <typename T, std::size_t n>
std::vector<T> find_all(const Named<T> (&table)[n], std::string_view text, std::string_view what) {
  if (text != "all") return {find(table, text, what)};
  std::vector<T> all;
  for (const auto& [name, value] : table) all.push_back(value);
  return all;
}

std::size_t size_option(std::string_view option, const std::string& text) {
  if (const auto size = parse_size(text)) return *size;
  throw Error(
      ErrorKind::usage,
      fmt::format("{} {}: expected a size in bytes, such as 8, 64K, 1M or 2G", option, text));
}

/// The options as text, as CLI11 reads them, before they are parsed.
struct Texts {
  std::string operation = "all_reduce", min = "32M", max = "32M", step = "1M";
  std::string op = "sum", type = "float", root = "0";
  int average = 1, blocking = 0;
  bool as_nccl_tests = false;
};

constexpr const char* kFooter = R"(
Prints the table of nccl-tests: time, algorithm bandwidth (bytes over time) and bus bandwidth
(what each link carries) for a call out of place and in place, and the number of wrong elements,
which is exact.
Without -n each time is the mean over at least ten milliseconds of calls, back to back after one
barrier. Ranks are pinned to cores where there are enough. A launcher's ranks (tutti-run, torchrun,
mpirun, srun) are used where there are some; else tutti-perf starts its own.
With --device or -g the buffers are in the memory of GPUs, calls are given to streams, and their
time ends when the streams have done them. TUTTI_DEVICE says who moves the bytes: the host, or
kernels. Without --ranks there is a rank for each GPU.

  tutti-perf all_reduce --ranks 2 -b 8 -e 256M -f 2 --plot all_reduce.svg
  all_reduce_perf -b 8 -e 128M -f 2 -t 2
  TUTTI_DEVICE=rank tutti-perf all_reduce -g 4 -b 8 -e 128M -f 2
  tutti-perf --limits -b 8 -e 64M -f 8
  tutti-perf all_reduce --explain --ranks 4 -b 8 -e 16M -f 8
  tutti-perf --tune)";

constexpr int kMany = 1'000'000'000;

void declare_what(CLI::App& app, Options& options, Texts& texts) {
  app.option_defaults()->group("What is measured");
  app.add_option("operation", texts.operation,
                 fmt::format("{} (or with _perf)", available(kOperations)));
  app.add_option("-b,--minbytes", texts.min, "Smallest size");
  app.add_option("-e,--maxbytes", texts.max, "Largest size");
  app.add_option("-i,--stepbytes", texts.step, "Step between sizes, without -f");
  app.add_option("-f,--stepfactor", options.step_factor, "Factor between sizes; 1: steps of -i")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 32));
  app.add_option("-d,--datatype", texts.type, fmt::format("{} or all", available(kTypes)));
  app.add_option("-o,--op", texts.op, fmt::format("{} or all", available(kOperators)));
  app.add_option("-r,--root", texts.root,
                 "Root of broadcast, reduce, gather and scatter: a rank or all");
  app.add_option("-u,--unalign", options.unalign, "Elements that each buffer is moved by")
      ->check(CLI::Range(0, 4096));
}

void declare_ranks(CLI::App& app, Options& options) {
  app.option_defaults()->group("Ranks");
  app.add_option("--ranks", options.ranks, "Ranks to start, each a process")
      ->check(CLI::Range(1, 4096));
  app.add_option("-t,--nthreads", options.threads, "Ranks as so many threads of one process")
      ->check(CLI::Range(1, 4096));
  app.add_option("-g,--ngpus", options.gpus,
                 "GPUs of each thread, which drives a rank for each; above 1 it implies --device")
      ->check(CLI::Range(1, 4096));
  app.add_flag("--device{auto}", options.device,
               "Buffers in the memory of GPUs: of one for each rank, or with --device=N of GPU N")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("-y,--stream_null", options.null_stream,
                 "With --device, 1: calls on CUDA's default stream")
      ->check(CLI::Range(0, 1));
  app.add_option("-p,--parallel_init", options.parallel_init,
                 "0 or 1: ranks join at the same time either way")
      ->check(CLI::Range(0, 1));
}

void declare_measuring(CLI::App& app, Options& options, Texts& texts) {
  app.option_defaults()->group("How it is measured");
  app.add_option("-n,--iters", options.iterations,
                 "Iterations to measure (default: ten milliseconds)")
      ->check(CLI::Range(1, kMany));
  app.add_option("-m,--agg_iters", options.aggregated,
                 "Calls of an iteration: asynchronous, waited for together")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("-w,--warmup_iters", options.warmup_iterations, "Calls before, of each size")
      ->check(CLI::Range(0, kMany));
  app.add_option("-N,--run_cycles", options.run_cycles, "Times through all sizes; 0: for ever")
      ->check(CLI::Range(0, kMany));
  app.add_option("-z,--blocking", texts.blocking,
                 "1: wait and barrier after each call, 2: wait, 3: wait and barrier after each "
                 "iteration, the barrier not timed")
      ->check(CLI::Range(0, 3));
  app.add_option("-a,--average", texts.average, "Time of 0: rank 0; ranks' 1: mean, 2: min, 3: max")
      ->check(CLI::Range(0, 3));
  app.add_option("-c,--check", options.checks, "How often to check results; 0: not")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("-T,--timeout", options.timeout_s,
                 "Seconds that a call may take; 0: as configured (TUTTI_TIMEOUT_MS)")
      ->check(CLI::Range(0, 86'400));
  app.add_flag("--rotate", options.rotate,
               "Walk through -e bytes of buffer from call to call, as nccl-tests does");
  app.add_option("-R,--local_register", options.shared_buffers,
                 "1 or 2: buffers that peers read and write where they lie (tutti::Buffer)")
      ->check(CLI::Range(0, 2));
  app.add_flag("--nccl-tests", texts.as_nccl_tests,
               "Defaults of nccl-tests: --ranks 1 -n 20 --rotate; a linked name sets it");
}

void declare_output(CLI::App& app, Options& options) {
  app.option_defaults()->group("What is shown");
  const auto is_named = [](const std::string& path) {
    return path.empty() ? "the path is empty" : std::string();
  };
  app.add_option("-J,--output_file", options.json_path,
                 "Write the results as JSON, in full precision")
      ->check(is_named);
  app.add_option("--plot", options.plot_path,
                 "Draw bandwidth and time over size into this SVG file")
      ->check(is_named);
  app.add_option("-I,--per_iter_timing", options.per_iteration,
                 "1: least, greatest, 99th percentile and variation of single iterations")
      ->check(CLI::Range(0, 1));
  app.add_option("-K,--per_iter_skip", options.skipped_iterations,
                 "Leading iterations that -I leaves out")
      ->check(CLI::Range(0, kMany));
  app.add_option("-C,--report_cputime", options.cpu_time,
                 "1: processor time of the calling thread in place of time passed")
      ->check(CLI::Range(0, 1));
  app.add_option("-S,--report_timestamps", options.timestamps, "1: the time of day of each row")
      ->check(CLI::Range(0, 1));
  app.add_option("-M,--memory_report,--memory", options.memory,
                 "1: memory of communicator and buffers, of the rank that has most")
      ->check(CLI::Range(0, 1));
  auto* const limits = app.add_flag("--limits", options.limits,
                                    "Measure this machine: the least that an all_reduce of two "
                                    "ranks could take; with -b, -e, -i and -f alone")
                           ->excludes("operation", "--ranks", "--nthreads");
  auto* const explain =
      app.add_flag("--explain", options.explain,
                   "For each size what every algorithm would take, as predicted, and takes; and "
                   "which one is chosen")
          ->excludes(limits);
  app.add_flag("--tune", options.tune,
               "Measure what this machine costs, by which algorithms are chosen, and keep it")
      ->excludes(limits, explain);
  app.add_option("--tune-file", options.tune_file,
                 "Where --tune keeps it, for TUTTI_TUNING_FILE (default: where tutti looks for it, "
                 "~/.cache/tutti/tuning.json)");
  app.add_option("--tune-samples", options.samples_path)->group("");  // It is for ranks of --tune.
  app.add_flag("--show-limits", options.show_limits, "Add that limit to each row");
  app.add_flag(
      "--phase", options.show_phase,
      "Add the one-way time of a cache line to each row: it shows when a virtual machine's "
      "cores move");
}

/// Adds the options of nccl-tests for what NCCL alone has. The value that changes nothing is
/// accepted; every other value is refused.
struct GpuOption {
  const char* name;
  const char* harmless;
  const char* what;
};
constexpr GpuOption kGpuOptions[] = {
    {"-G,--cudagraph", "0", "captures and replays CUDA graphs"},
    {"-x,--cta_policy", "", "says how NCCL's kernels use a GPU's blocks of threads"},
    {"-D,--device_implementation", "0", "runs a kernel that communicates by itself"},
    {"-V,--device_cta_count", "16", "says how many blocks of threads -D has"}};

void declare_gpu_options(CLI::App& app) {
  app.option_defaults()->group("Of nccl-tests: unavailable unless they change nothing");
  for (const GpuOption& option : kGpuOptions)
    app.add_option_function<std::string>(
           option.name,
           [&option](const std::string& value) {
             if (value == option.harmless) return;
             throw Error(ErrorKind::unavailable,
                         fmt::format("{} {}: it {}, which tutti-perf cannot do", option.name, value,
                                     option.what));
           },
           fmt::format("It {}", option.what))
        ->default_str(option.harmless);
}

void declare(CLI::App& app, Options& options, Texts& texts) {
  declare_what(app, options, texts);
  declare_ranks(app, options);
  declare_measuring(app, options, texts);
  declare_output(app, options);
  for (CLI::Option* option : app.get_options())
    if (option->get_name() != "--help") option->capture_default_str();
  declare_gpu_options(app);
  app.option_defaults()->group("Options");
  app.set_version_flag("--version", std::string(version()));
  app.footer(kFooter);
}

/// Refuses options that say nothing to --limits.
void check_limits(const CLI::App& app) {
  if (app.count("--limits") == 0) return;
  constexpr std::string_view kOwn[] = {"--limits", "--minbytes", "--maxbytes", "--stepbytes",
                                       "--stepfactor"};
  for (const CLI::Option* option : app.get_options())
    if (option->count() > 0 &&
        std::find(std::begin(kOwn), std::end(kOwn), option->get_name()) == std::end(kOwn))
      throw Error(
          ErrorKind::usage,
          fmt::format("--limits measures two cores of this machine, and {} means nothing to "
                      "it: it takes -b, -e, -i and -f",
                      option->get_name()));
}

std::optional<int> root_option(const std::string& text) {
  if (text == "all") return std::nullopt;
  int root = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, root);
  if (error != std::errc() || stop != end || root < 0)
    throw Error(ErrorKind::usage, fmt::format("-r {}: expected a rank or all", text));
  return root;
}

void interpret_what(Options& options, const Texts& texts) {
  std::string_view operation = texts.operation;
  if (operation.ends_with("_perf")) operation.remove_suffix(5);
  options.what = find(kOperations, operation, "operation");
  options.ops = find_all(kOperators, texts.op, "reduction");
  std::string_view type = texts.type;
  if (type.starts_with("fp8_")) type.remove_prefix(4);
  options.types = type == texts.type ? find_all(kTypes, type, "type")
                                     : std::vector{find(kTypes, fmt::format("f8{}", type), "type")};
  options.min_bytes = size_option("-b", texts.min);
  options.max_bytes = size_option("-e", texts.max);
  options.step_bytes = size_option("-i", texts.step);
  if (options.min_bytes > options.max_bytes)
    throw Error(ErrorKind::usage,
                fmt::format("-b {} is greater than -e {}: no size is left", texts.min, texts.max));
  if (options.min_bytes < options.max_bytes && options.step_factor == 1 && options.step_bytes == 0)
    throw Error(ErrorKind::usage, "-i 0: sizes would never reach -e; give a step or a factor (-f)");
  options.root = root_option(texts.root);
}

void interpret_ranks(Options& options, const Texts& texts) {
  if (options.gpus > 1 && !options.on_gpus()) options.device = kAnyDevice;
  const int own = options.ranks_of_process();
  if (!options.ranks_given && (texts.as_nccl_tests || own > 1)) options.ranks = 1;
  if (own > 1 && options.ranks > 1)
    throw Error(ErrorKind::unavailable,
                fmt::format("-t {} -g {} --ranks {}: --ranks starts processes of one rank each; a "
                            "launcher starts several with these, each with GPUs (tutti-run -n {} "
                            "-- tutti-perf --device)",
                            options.threads, options.gpus, options.ranks, options.ranks));
  const bool one_for_all =
      options.on_gpus() && options.device != "rank" && options.device != kAnyDevice;
  if (one_for_all && parse_number<int>(options.device).value_or(-1) < 0)
    throw Error(ErrorKind::usage, fmt::format("--device={}: expected rank, or the number of a GPU "
                                              "from 0 on",
                                              options.device));
  options.rank_per_gpu =
      options.on_gpus() && !one_for_all && !options.ranks_given && !texts.as_nccl_tests && own == 1;
}

/// Refuses what has no meaning for the place of the buffers.
void check_device(const Options& options) {
  if (!options.on_gpus()) {
    if (options.null_stream)
      throw Error(ErrorKind::unavailable,
                  "-y 1: it makes calls on CUDA's default stream, and buffers are in the memory of "
                  "the host: add --device");
    return;
  }
  if (options.shared_buffers > 0)
    throw Error(
        ErrorKind::unavailable,
        fmt::format("-R {} --device: tutti::Buffer is memory of the host", options.shared_buffers));
  const std::pair<bool, const char*> of_host[] = {{options.limits, "--limits"},
                                                  {options.explain, "--explain"},
                                                  {options.tune, "--tune"},
                                                  {!options.samples_path.empty(), "--tune-samples"},
                                                  {options.show_limits, "--show-limits"},
                                                  {options.show_phase, "--phase"}};
  for (const auto& [given, name] : of_host)
    if (given)
      throw Error(ErrorKind::unavailable,
                  fmt::format("{} --device: {} is about what the cores of the host cost, not GPUs",
                              name, name));
}

void interpret_measuring(Options& options, const Texts& texts) {
  options.average = Average{texts.average};
  options.blocking = Blocking{texts.blocking};
  if (texts.as_nccl_tests) {
    options.rotate = true;
    if (options.iterations == 0) options.iterations = 20;
  }
  if (options.iterations > 0 && options.skipped_iterations >= options.iterations)
    throw Error(ErrorKind::usage, fmt::format("-K {}: of {} iterations (-n) none is left",
                                              options.skipped_iterations, options.iterations));
}

template <typename T, std::size_t n>
std::string_view name_in(const Named<T> (&table)[n], T value) {
  for (const auto& named : table)
    if (named.value == value) return named.name;
  assert(false && "a value that has no option");
  return {};
}

}  // namespace

std::string_view name_of(Operation what) noexcept { return name_in(kOperations, what); }
std::string_view name_of(DataType type) noexcept { return name_in(kTypes, type); }
std::string_view name_of(Op op) noexcept { return name_in(kOperators, op); }

std::optional<std::size_t> parse_size(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  if (error != std::errc() || !(number >= 0)) return std::nullopt;
  if (unit.ends_with('b') || unit.ends_with('B')) unit.remove_suffix(1);
  if (unit.size() == 2 && unit[1] == 'i') unit.remove_suffix(1);
  if (unit.size() > 1) return std::nullopt;
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
    // nccl-tests never ends if it has to double a size of 0.
    const std::size_t next = options.step_factor > 1
                                 ? std::max<std::size_t>(size, 1) * options.step_factor
                                 : size + options.step_bytes;
    if (next <= size) break;
    size = next;
  }
  assert(!result.empty());
  return result;
}

namespace {

void require_ranks_of_a_group(const Options& options, int ranks) {
  if (options.root && *options.root >= ranks)
    throw Error(ErrorKind::usage, fmt::format("-r {}: there are {} ranks, so the last one is {}",
                                              *options.root, ranks, ranks - 1));
  if (options.what == Operation::hypercube && (ranks & (ranks - 1)) != 0)
    throw Error(ErrorKind::unavailable,
                fmt::format("hypercube: its ranks are a power of two, and {} is none", ranks));
}

}  // namespace

void require_ranks(const Options& options, int ranks) {
  assert(ranks >= 1);
  std::map<int, int> sizes;  // indexed by color
  for (int rank = 0; rank < ranks; ++rank) ++sizes[options.split.color(rank)];
  for (const auto& [color, size] : sizes) {
    require_ranks_of_a_group(options, size);
    if (!options.root && size != sizes.begin()->second)
      throw Error(ErrorKind::unavailable,
                  fmt::format("-r all: the groups of NCCL_TESTS_SPLIT have {} and {} ranks, and so "
                              "not the same roots",
                              sizes.begin()->second, size));
  }
}

std::vector<std::string> command_line(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv, argv + argc);
  std::string name = arguments.at(0).substr(arguments[0].rfind('/') + 1);
  if (name.ends_with("_perf")) {
    arguments[0] = "tutti-perf";
    arguments.insert(arguments.begin() + 1, {std::move(name), "--nccl-tests"});
  }
  return arguments;
}

std::optional<Options> parse(const std::vector<std::string>& arguments) {
  CLI::App app("Measures the bandwidth of collective operations.", "tutti-perf");
  Options options;
  Texts texts;
  declare(app, options, texts);
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  try {
    app.parse(static_cast<int>(argv.size()), argv.data());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw Error(ErrorKind::usage, error.what());
    app.exit(error);
    return std::nullopt;
  }
  interpret_what(options, texts);
  options.ranks_given = app.count("--ranks") > 0;
  interpret_ranks(options, texts);
  check_device(options);
  check_limits(app);
  interpret_measuring(options, texts);
  read_environment(options);
  return options;
}

}  // namespace tutti::perf
