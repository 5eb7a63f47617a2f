#include "perf/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <sstream>

namespace tutti::perf {

std::string program_name(const Options& options) {
  return fmt::format("{}_perf", to_string(options.what));
}

std::string fit(double value, int width) {
  assert(width >= 6);
  int digits = 0;  // before the point
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

std::string format_banner(const Options& options, std::string_view version) {
  const bool factor = options.step_factor > 1;
  return fmt::format(
      "# tutti-perf version {} tutti-library={}\n"
      "# Collective test starting: {}\n"
      "# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg "
      "iters: 1 validation: {} graph: 0 unalign: 0\n"
      "#\n"
      "# Using devices\n",
      version, version_code(version), program_name(options), options.min_bytes, options.max_bytes,
      factor ? options.step_factor : options.step_bytes, factor ? "factor" : "bytes",
      options.warmup_iterations,
      options.iterations > 0 ? std::to_string(options.iterations) : "auto", options.checks);
}

std::string format_device(const Device& device) {
  return fmt::format("#  Rank {:2} Group  0 Pid {:6} on {:>10} device {:2} [cpu] {}\n", device.rank,
                     device.pid, device.host, device.core, device.info);
}

std::string format_titles(const Options& options) {
  const auto line = [&](std::string_view size, std::string_view count, std::string_view type,
                        std::string_view op, std::string_view root, std::string_view time,
                        std::string_view bandwidth, std::string_view bus, std::string_view wrong,
                        std::string_view limit, std::string_view phase) {
    const std::string half =
        fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", time, bandwidth, bus, wrong);
    std::string text = fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}{}", size, count, type,
                                   op, root, half, half);
    if (options.show_limits) text += fmt::format("  {:>7}", limit);
    if (options.show_phase) text += fmt::format("  {:>7}", phase);
    return text + " \n";
  };
  return "#\n" +
         fmt::format(
             "# {:10}  {:12}  {:8}  {:6}  {:6}           out-of-place                       "
             "in-place          \n",
             "", "", "", "", "") +
         line("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "limit",
              "oneway") +
         line("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(ns)");
}

std::string format_row(const Row& row, const Options& options) {
  std::string text = fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:6}", row.size_bytes, row.count,
                                 row.type, row.op, row.root);
  for (const Timing* timing : {&row.out_of_place, &row.in_place}) {
    text += fmt::format("  {}  {}  {}", fit(timing->time_us, 7), fit(timing->algorithm_gb_s, 6),
                        fit(timing->bus_gb_s, 6));
    text += timing->wrong ? fmt::format("  {:6g}", static_cast<double>(*timing->wrong))
                          : std::string("    N/A");
  }
  if (options.show_limits)
    text += fmt::format("  {:>7}", row.limit_us ? fit(*row.limit_us, 7) : "N/A");
  if (options.show_phase) {
    const auto slower = std::max(row.out_of_place.one_way_ns, row.in_place.one_way_ns);
    text += fmt::format("  {:>7}", slower ? fit(*slower, 7) : "N/A");
  }
  return text + "\n";
}

std::string format_summary(const Summary& summary, const Options& options) {
  return fmt::format(
      "# {:<20} : {} {}\n"
      "# {:<20} : {:g} \n"
      "#\n"
      "# Collective test concluded: {}\n"
      "#\n"
      "\n",
      "Out of bounds values", summary.wrong_results, summary.wrong_results == 0 ? "OK" : "FAILED",
      "Avg bus bandwidth", summary.mean_bus_gb_s, program_name(options));
}

}  // namespace tutti::perf
