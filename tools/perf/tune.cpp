#include "perf/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "collectives/algorithms/algorithms.h"
#include "collectives/planning/prices.h"
#include "perf/table.h"

namespace tutti::perf {
namespace {

constexpr double kLeastUs = 2'000;
constexpr std::size_t kLargest = 4 << 20;

using CallOfSamples = std::tuple<int, Collective, std::size_t>;  // ranks, operation, bytes
CallOfSamples call_of(const Sample& sample) { return {sample.ranks, sample.what, sample.bytes}; }

/// Returns how much longer, on average, the chosen algorithms take than the fastest measured ones.
double lost_percent(const std::vector<Sample>& samples, const MachineCosts& costs) {
  PriceList prices(costs);
  std::map<CallOfSamples, std::vector<const Sample*>> calls;
  for (const Sample& sample : samples) calls[call_of(sample)].push_back(&sample);
  double sum = 0;
  for (const auto& [call, measured] : calls) {
    const Sample& any = *measured.front();
    std::size_t most = 0;
    for (const Sample* sample : measured) most = std::max(most, sample->message_bytes);
    const Choice choice = prices.choose({.what = any.what,
                                         .bytes = any.bytes,
                                         .ranks = any.ranks,
                                         .cores = any.cores,
                                         .max_message_bytes = most},
                                        "");
    double fastest = any.measured_us, taken = any.measured_us;
    for (const Sample* sample : measured) {
      fastest = std::min(fastest, sample->measured_us);
      if (sample->algorithm == algorithms()[choice.algorithm].name) taken = sample->measured_us;
    }
    sum += std::log(taken / fastest);
  }
  return 100 * std::expm1(sum / static_cast<double>(calls.size()));
}

}  // namespace

std::vector<TuneCall> tune_calls() {
  std::vector<TuneCall> calls;
  for (const Operation what :
       {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter,
        Operation::broadcast, Operation::alltoall, Operation::gather, Operation::scatter})
    for (std::size_t bytes = 64; bytes <= kLargest; bytes *= 4) {
      const bool checks = bytes == 1 << 10 || bytes == 64 << 10;
      const bool large = bytes > 1 << 20;
      if (large && what != Operation::all_reduce && what != Operation::all_gather) continue;
      calls.push_back({what, bytes, checks});
    }
  return calls;
}

std::vector<int> tune_ranks(int cores) {
  assert(cores >= 1);
  std::set<int> counts{2, std::clamp(cores, 2, 8)};
  if (2 * cores <= 8) counts.insert(2 * cores);
  return {counts.begin(), counts.end()};
}

std::vector<Sample> measure_samples(Communicator& comm, Bench& bench, int cores) {
  std::vector<Sample> samples;
  for (const TuneCall& tried : tune_calls()) {
    const Collective what = *collective_of(tried.what);
    const Call call = perf::call_of(tried.what, DataType::f32, Op::sum, 0, tried.bytes,
                                    {comm.size(), comm.rank(), 1});
    for (const AlgorithmPrice& price : comm.prices(what, call.count, call.type)) {
      // With groups of ranks of one machine it shows nothing that the others do not show.
      if (price.algorithm == "hierarchical") continue;
      const std::string_view name = algorithms()[algorithm_index(price.algorithm)].name;
      samples.push_back({what, name, comm.size(), cores, call.count * size_of(call.type),
                         price.message_bytes, bench.time_us(call, name, kLeastUs), tried.checks});
    }
  }
  return samples;
}

std::string to_text(const std::vector<Sample>& samples) {
  std::string text;
  for (const Sample& sample : samples)
    text += fmt::format("{} {} {} {} {} {} {} {}\n", static_cast<int>(sample.what),
                        sample.algorithm, sample.ranks, sample.cores, sample.bytes,
                        sample.message_bytes, sample.measured_us, sample.checks ? 1 : 0);
  return text;
}

std::vector<Sample> parse_samples(const std::string& text) {
  std::vector<Sample> samples;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    int what = -1;
    std::string algorithm;
    Sample sample;
    fields >> what >> algorithm >> sample.ranks >> sample.cores >> sample.bytes >>
        sample.message_bytes >> sample.measured_us >> sample.checks;
    if (!fields || what < 0 || what >= kCollectives || !(sample.measured_us > 0))
      throw Error(ErrorKind::corrupt, fmt::format("a rank's samples cannot be read: '{}'", line));
    sample.what = static_cast<Collective>(what);
    sample.algorithm = algorithms()[algorithm_index(algorithm)].name;
    samples.push_back(sample);
  }
  return samples;
}

Tuned tune(const std::vector<Sample>& samples, const MachineCosts& start) {
  std::vector<Sample> fitted, checked;
  for (const Sample& sample : samples) (sample.checks ? checked : fitted).push_back(sample);
  Tuned tuned{fit(fitted, start), std::move(checked), {}, 0, 0};
  tuned.predicted_us = predict(tuned.checked, tuned.fit.costs);
  tuned.fit.costs.error_percent = error_percent(tuned.checked, tuned.predicted_us);
  tuned.lost_percent = lost_percent(samples, tuned.fit.costs);
  tuned.lost_built_in_percent = lost_percent(samples, start);
  return tuned;
}

std::string format_tuned(const Tuned& tuned) {
  std::string text =
      fmt::format("# {:>14}  {:<20}  {:>5}  {:>9}  {:>10}  {:>10}  {:>6}\n", "operation",
                  "algorithm", "ranks", "bytes", "predicted", "measured", "error");
  for (std::size_t i = 0; i < tuned.checked.size(); ++i) {
    const Sample& sample = tuned.checked[i];
    text += fmt::format("{:>16}  {:<20}  {:>5}  {:>9}  {:>10}  {:>10}  {:>+5.0f}%\n",
                        to_string(sample.what), sample.algorithm, sample.ranks, sample.bytes,
                        fit(tuned.predicted_us[i], 7), fit(sample.measured_us, 7),
                        100 * (tuned.predicted_us[i] / sample.measured_us - 1));
  }
  return text + fmt::format(
                    "#\n# Three of four of these {} predictions, of calls that were not fitted, "
                    "are off by less than {} %\n"
                    "# What is chosen takes {:.1f} % more time than the fastest, on average; with "
                    "the built-in costs {:.1f} %\n",
                    tuned.checked.size(), tuned.fit.costs.error_percent, tuned.lost_percent,
                    tuned.lost_built_in_percent);
}

}  // namespace tutti::perf
