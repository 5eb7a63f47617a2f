#include "perf/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "perf/iterations.h"
#include "perf/table.h"

namespace tutti::perf {
namespace {

const ExplainedAlgorithm& fastest(const Explained& explained) {
  assert(!explained.algorithms.empty());
  return *std::min_element(
      explained.algorithms.begin(), explained.algorithms.end(),
      [](const auto& a, const auto& b) { return a.measured_us < b.measured_us; });
}

double error_percent(const ExplainedAlgorithm& of) {
  assert(of.predicted_us && of.measured_us > 0);
  return 100 * (*of.predicted_us / of.measured_us - 1);
}

}  // namespace

void explain(Communicator& comm, Bench& bench, const Options& options,
             const std::function<void(const Explained&)>& report) {
  const auto what = collective_of(options.what);
  if (!what)
    throw Error(ErrorKind::unavailable,
                fmt::format("--explain {}: no algorithm is chosen for it", name_of(options.what)));
  const int root = has_root(options.what) ? options.root.value_or(0) : 0;
  for (const std::size_t bytes : sizes(options)) {
    const Call call = call_of(options.what, options.types[0], options.ops[0], root, bytes,
                              {comm.size(), comm.rank(), 1});
    Explained explained{call.bytes(), {}};
    for (const AlgorithmPrice& price : comm.prices(*what, call.count, call.type, call.op, root))
      explained.algorithms.push_back({price.algorithm, price.message_bytes, price.predicted_us,
                                      bench.time_us(call, price.algorithm, kLeastUs),
                                      price.chosen});
    report(explained);
  }
}

std::string format_explain_titles(const Options& options, int ranks) {
  return fmt::format(
      "# {}, {} ranks, {}: what each algorithm would take and takes; * is chosen, < is fastest\n"
      "#\n"
      "# {:>10}    {:<20}  {:>9}  {:>10}  {:>10}  {:>6}\n"
      "# {:>10}    {:<20}  {:>9}  {:>10}  {:>10}  {:>6}\n",
      name_of(options.what), ranks, name_of(options.types[0]), "size", "algorithm", "message",
      "predicted", "measured", "error", "(B)", "", "(B)", "(us)", "(us)", "(%)");
}

std::string format_explained(const Explained& explained) {
  std::string text;
  const ExplainedAlgorithm& best = fastest(explained);
  for (const ExplainedAlgorithm& each : explained.algorithms)
    text += fmt::format("{:12} {}{} {:<20}  {:>9}  {:>10}  {:>10}  {:>6}\n", explained.size_bytes,
                        each.chosen ? '*' : ' ', &each == &best ? '<' : ' ', each.name,
                        each.message_bytes, each.predicted_us ? fit(*each.predicted_us, 7) : "-",
                        fit(each.measured_us, 7),
                        each.predicted_us ? fmt::format("{:+.0f}", error_percent(each)) : "-");
  return text;
}

std::string format_explain_summary(const std::vector<Explained>& all) {
  std::vector<double> errors;
  double lost = 0;
  std::size_t choices = 0;
  for (const Explained& explained : all)
    for (const ExplainedAlgorithm& each : explained.algorithms) {
      if (each.predicted_us) errors.push_back(std::abs(error_percent(each)));
      if (!each.chosen) continue;
      lost += std::log(each.measured_us / fastest(explained).measured_us);
      ++choices;
    }
  std::string text = "#\n";
  if (errors.empty()) {
    text += "# So many ranks are not priced: the choices are the table's (docs/selection.md)\n";
  } else {
    std::sort(errors.begin(), errors.end());
    text += fmt::format(
        "# Half of the predictions are off by less than {:.0f} %, nine of ten by "
        "less than {:.0f} %\n",
        errors[errors.size() / 2], errors[errors.size() * 9 / 10]);
  }
  if (choices > 0)
    text += fmt::format("# What is chosen takes {:.0f} % more time than the fastest, on average\n",
                        100 * std::expm1(lost / static_cast<double>(choices)));
  return text;
}

}  // namespace tutti::perf
