#include "perf/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <ctime>
#include <iterator>
#include <numeric>
#include <sstream>

namespace tutti::perf {
namespace {

constexpr const char* kTimeFormat = "%Y-%m-%d %H:%M:%S";

}  // namespace

std::string program_name(const Options& options) {
  return fmt::format("{}_perf", name_of(options.what));
}

std::string fit(double value, int width) {
  assert(width >= 6);
  int digits = 0;  // digits before the point
  for (double bound = 1; value >= bound && digits <= width; bound *= 10) ++digits;
  if (digits < width - 2) return fmt::format("{:{}.2f}", value, width);
  if (digits < width - 1) return fmt::format("{:{}.1f}", value, width);
  if (digits < width + 1) return fmt::format("{:{}.0f}", value, width);
  return fmt::format("{:{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

int version_code(std::string_view version) {
  int major = 0, minor = 0, patch = 0;
  char dot = 0;
  std::istringstream(std::string(version)) >> major >> dot >> minor >> dot >> patch;
  return 10000 * major + 100 * minor + patch;
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, kTimeFormat, &local)};
}

Statistics statistics(const IterationTimes& times) {
  assert(0 <= times.skipped && static_cast<std::size_t>(times.skipped) < times.slowest_us.size());
  std::vector<double> sorted(times.slowest_us.begin() + times.skipped, times.slowest_us.end());
  assert(!sorted.empty());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  const auto percentile = [&](std::size_t percent) {
    return sorted[std::min(n - 1, (n * percent + 99) / 100 - 1)];
  };
  Statistics s;
  s.min = sorted.front();
  s.max = sorted.back();
  s.p50 = sorted[n / 2];
  s.p95 = percentile(95);
  s.p99 = percentile(99);
  s.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(n);
  double squares = 0;
  for (const double x : sorted) squares += (x - s.mean) * (x - s.mean);
  s.deviation = std::sqrt(squares / static_cast<double>(n));
  s.variation_pct = s.mean > 0 ? s.deviation / s.mean * 100 : 0;
  return s;
}

bool passed(const Summary& summary, const Options& options) {
  return summary.wrong_results == 0 &&
         (!options.min_bus_gb_s || summary.mean_bus_gb_s >= 0.9 * *options.min_bus_gb_s);
}

namespace {

std::string modes(const Options& options) {
  std::string text;
  switch (options.blocking) {
    case Blocking::no: break;
    case Blocking::wait_and_barrier:
      text = "# Blocking Enabled: wait and barrier after each inner iteration (-m) \n";
      break;
    case Blocking::wait:
      text = "# Blocking Enabled: wait after each inner iteration (-m), no barrier \n";
      break;
    case Blocking::barrier_untimed:
      text =
          "# Blocking Enabled: wait and barrier after each outer iteration (-n); time excludes "
          "barrier \n";
  }
  if (options.per_iteration) {
    text += "# Per-Iteration Report: CPU clock timing; i_* uses max over process rows";
    if (options.skipped_iterations > 0)
      text += fmt::format("; summary skips first {} iterations", options.skipped_iterations);
    text += " \n";
  }
  if (options.parallel_init) text += "# Parallel Init Enabled: ranks join concurrently \n";
  return text;
}

}  // namespace

std::string format_banner(const Options& options, std::string_view version) {
  const bool factor = options.step_factor > 1;
  return fmt::format(
      "# tutti-perf version {} tutti-library={}\n"
      "# Collective test starting: {}\n"
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg "
      "iters: {} validation: {} graph: 0 unalign: {}\n"
      "{}"
      "#\n"
      "# Using devices\n",
      version, version_code(version), program_name(options), options.threads, options.gpus,
      options.min_bytes, options.max_bytes, factor ? options.step_factor : options.step_bytes,
      factor ? "factor" : "bytes", options.warmup_iterations,
      options.iterations > 0 ? std::to_string(options.iterations) : "auto", options.aggregated,
      options.checks, options.unalign, modes(options));
}

std::string format_device(const Device& device) {
  return fmt::format("#  Rank {:2} Group {:2} Pid {:6} on {:>10} device {:2} [{}] {}\n",
                     device.rank, device.group, device.pid, device.host, device.number, device.bus,
                     device.info);
}

Mover mover(const Options& options, bool kernels) {
  const bool transfers =
      options.what == Operation::sendrecv || options.what == Operation::hypercube;
  if (!kernels) return Mover::host;
  if (transfers) return Mover::host_transfers;
  return options.on_gpus() ? Mover::kernels : Mover::kernels_for_host;
}

std::string format_mover(Mover mover) {
  const char* text = "";
  switch (mover) {
    case Mover::host: text = "the host, by way of pinned memory"; break;
    case Mover::host_transfers:
      text = "the host, which does all sends and receives; kernels run the collectives";
      break;
    case Mover::kernels: text = "kernels of these GPUs"; break;
    case Mover::kernels_for_host: text = "kernels of GPUs (TUTTI_DEVICE), on pinned copies"; break;
  }
  return fmt::format("#\n# {:<20} : {}\n", "Bytes moved by", text);
}

namespace {

/// The words of one line of titles, or of the line with their units.
struct Titles {
  std::string_view size, count, type, op, root;
  std::string_view time, bandwidth, bus, wrong;  // for each half
  std::string_view min, max, p99, variation;     // with -I, for each half
  std::string_view limit, phase, time_of_day;
};

std::string format_line(const Titles& t, const Options& options) {
  std::string half =
      fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", t.time, t.bandwidth, t.bus, t.wrong);
  if (options.per_iteration)
    half += fmt::format("  {:>7}  {:>7}  {:>7}  {:>7}", t.min, t.max, t.p99, t.variation);
  std::string text = fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}{}", t.size, t.count,
                                 t.type, t.op, t.root, half, half);
  if (options.show_limits) text += fmt::format("  {:>7}", t.limit);
  if (options.show_phase) text += fmt::format("  {:>7}", t.phase);
  if (options.timestamps) return text + fmt::format(" {:>19}\n", t.time_of_day);
  return text + " \n";
}

}  // namespace

std::string format_titles(const Options& options) {
  const char* halves = options.per_iteration
                           ? "              out-of-place (+ per-iteration)                         "
                             "       in-place (+ "
                             "per-iteration)"
                           : "           out-of-place                       in-place          ";
  return "#\n" + fmt::format("# {:10}  {:12}  {:8}  {:6}  {:6}{}\n", "", "", "", "", "", halves) +
         format_line({"size", "count", "type", "redop", "root",
                      options.cpu_time ? "cputime" : "time", "algbw", "busbw", "#wrong", "i_min",
                      "i_max", "i_p99", "i_cv%", "limit", "oneway", "timestamp"},
                     options) +
         format_line({"(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
                      "(us)", "(us)", "(%)", "(us)", "(ns)", kTimeFormat},
                     options);
}

std::string format_row(const Row& row, const Options& options) {
  std::string text = fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:6}", row.size_bytes, row.count,
                                 row.type, row.op, row.root);
  for (const Timing* timing : {&row.out_of_place, &row.in_place}) {
    text += fmt::format("  {}  {}  {}", fit(timing->time_us, 7), fit(timing->algorithm_gb_s, 6),
                        fit(timing->bus_gb_s, 6));
    text += timing->wrong ? fmt::format("  {:6g}", static_cast<double>(*timing->wrong))
                          : std::string("    N/A");
    if (!timing->per_iteration) continue;
    const Statistics single = statistics(*timing->per_iteration);
    for (const double value : {single.min, single.max, single.p99, single.variation_pct})
      text += "  " + fit(value, 7);
  }
  if (options.show_limits)
    text += fmt::format("  {:>7}", row.limit_us ? fit(*row.limit_us, 7) : "N/A");
  if (options.show_phase) {
    const auto slower = std::max(row.out_of_place.one_way_ns, row.in_place.one_way_ns);
    text += fmt::format("  {:>7}", slower ? fit(*slower, 7) : "N/A");
  }
  if (options.timestamps) text += fmt::format("{:>21}", row.time_of_day);
  return text + "\n";
}

namespace {

/// Returns for example "1.50 MB", as nccl-tests writes it: a megabyte is 2^20 bytes.
std::string amount_of(std::size_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KB", "MB", "GB"};
  auto amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < std::size(kUnits); ++unit) amount /= 1024;
  return fmt::format("{:.{}f} {}", amount, amount < 10 ? 2 : amount < 100 ? 1 : 0, kUnits[unit]);
}

std::string memory_line(const Summary& summary) {
  return fmt::format("# {:<20} : Communicator {} | Buffers {} | Total {}\n", "Memory usage",
                     amount_of(summary.communicator_bytes), amount_of(summary.buffer_bytes),
                     amount_of(summary.communicator_bytes + summary.buffer_bytes));
}

}  // namespace

std::string format_summary(const Summary& summary, const Options& options) {
  const bool right = summary.wrong_results == 0;
  const char* bandwidth = !options.min_bus_gb_s                               ? ""
                          : passed({0, summary.mean_bus_gb_s, 0, 0}, options) ? "OK"
                                                                              : "FAILED";
  return fmt::format(
      "# {:<20} : {} {}\n"
      "# {:<20} : {:g} {}\n"
      "{}"
      "#\n"
      "# Collective test concluded: {}\n"
      "#\n"
      "\n",
      "Out of bounds values", summary.wrong_results, right ? "OK" : "FAILED", "Avg bus bandwidth",
      summary.mean_bus_gb_s, bandwidth, options.memory ? memory_line(summary) : "",
      program_name(options));
}

}  // namespace tutti::perf
