#include "perf/fit.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <span>

#include "collectives/algorithms/algorithms.h"
#include "collectives/planning/select.h"
#include "collectives/planning/simulate.h"
#include "collectives/schedule/program.h"

namespace tutti::perf {
namespace {

constexpr double kPicosecondsInUs = 1e6;
constexpr double kLoyalty =
    0.004;  // a departure from the start by a factor of e counts like this error in each sample

std::vector<Program> programs_of(const Sample& sample) {
  CallSignature call;  // The elements are bytes.
  call.what = sample.what;
  call.count = sample.bytes;
  const Algorithm& algorithm = algorithms()[algorithm_index(sample.algorithm)];
  std::vector<Program> programs;
  for (int rank = 0; rank < sample.ranks; ++rank)
    programs.push_back(
        compile(algorithm.plan({sample.what, rank, sample.ranks, 0}), call, sample.message_bytes));
  return programs;
}

double predict(const Sample& sample, std::span<const Program> programs, const MachineCosts& costs) {
  const Cluster cluster =
      one_machine(costs, sample.ranks, sample.cores, costs.anywhere, 3 * sample.message_bytes);
  return static_cast<double>(simulate(programs, cluster)) / kPicosecondsInUs;
}

double error(double predicted_us, const Sample& sample) {
  assert(sample.measured_us > 0);
  return std::abs(std::log(std::max(predicted_us, 1e-6) / sample.measured_us));
}

class Fitting {
 public:
  Fitting(const std::vector<Sample>& samples, const MachineCosts& start)
      : samples_(samples), start_(start), costs_(start) {
    for (const Sample& sample : samples) programs_.push_back(programs_of(sample));
  }

  Fit run() {
    double error = error_of(costs_);
    for (const double factor : {4.0, 2.0, 1.4, 1.2, 1.1, 1.05})
      while (improve_one(factor, error)) {
      }
    return {costs_, predict_all(costs_)};
  }

 private:
  std::vector<double> predict_all(const MachineCosts& costs) const {
    std::vector<double> times;
    for (std::size_t i = 0; i < samples_.size(); ++i)
      times.push_back(predict(samples_[i], programs_[i], costs));
    return times;
  }

  double error_of(const MachineCosts& costs) const {
    double sum = 0;
    for (std::size_t i = 0; i < samples_.size(); ++i)
      sum += error(predict(samples_[i], programs_[i], costs), samples_[i]);
    return sum + kLoyalty * static_cast<double>(samples_.size()) * departure(costs);
  }

  // If several numbers explain the samples equally well, those near the start are more likely.
  double departure(const MachineCosts& costs) const {
    double sum = 0;
    const auto add = [&](std::int64_t now, std::int64_t then) {
      sum += std::abs(std::log(static_cast<double>(now + 1) / static_cast<double>(then + 1)));
    };
    for (const auto& field : machine_fields()) add(costs.*field.member, start_.*field.member);
    for (const LinkKind kind : {start_.anywhere, LinkKind::same_core})
      for (const auto& field : link_fields())
        add(costs.link(kind).*field.member, start_.link(kind).*field.member);
    return sum;
  }

  // Tries each number once, and returns whether one of them became better.
  bool improve_one(double factor, double& error) {
    bool better = false;
    for (const auto& field : machine_fields()) {
      if (field.member == &MachineCosts::cache_bytes ||
          field.member == &MachineCosts::error_percent ||
          field.member == &MachineCosts::network_kib)
        continue;
      const auto number = [&](MachineCosts& c) -> std::int64_t& { return c.*field.member; };
      if (improve(number, field.least, field.most, factor, error)) better = true;
    }
    for (const LinkKind kind : {start_.anywhere, LinkKind::same_core})
      for (const auto& field : link_fields()) {
        if (field.member == &LinkCosts::message) continue;  // follows costs.message
        const auto number = [&](MachineCosts& c) -> std::int64_t& {
          return c.links[static_cast<std::size_t>(kind)].*field.member;
        };
        if (improve(number, field.least, field.most, factor, error)) better = true;
      }
    return better;
  }

  // Tries a greater and a smaller number, and keeps one that reduces the error.
  template <typename Number>
  bool improve(Number number, std::int64_t least, std::int64_t most, double factor, double& error) {
    assert(least <= most && factor > 1);
    constexpr double kLeastChange = 0.9999;
    for (const double by : {factor, 1 / factor}) {
      MachineCosts tried = costs_;
      const double wanted = std::max(100.0, static_cast<double>(number(tried))) * by;
      number(tried) = std::clamp(static_cast<std::int64_t>(wanted), least, most);
      const double now = error_of(tried);
      if (now >= error * kLeastChange) continue;
      costs_ = tried;
      error = now;
      return true;
    }
    return false;
  }

  const std::vector<Sample>& samples_;
  const MachineCosts start_;
  std::vector<std::vector<Program>> programs_;  // indexed by sample and rank
  MachineCosts costs_;
};

}  // namespace

std::vector<double> predict(const std::vector<Sample>& samples, const MachineCosts& costs) {
  std::vector<double> times;
  for (const Sample& sample : samples) times.push_back(predict(sample, programs_of(sample), costs));
  return times;
}

std::int64_t error_percent(const std::vector<Sample>& samples,
                           const std::vector<double>& predicted_us) {
  assert(samples.size() == predicted_us.size() && !samples.empty());
  std::vector<double> errors;
  for (std::size_t i = 0; i < samples.size(); ++i)
    errors.push_back(error(predicted_us[i], samples[i]));
  std::sort(errors.begin(), errors.end());
  return static_cast<std::int64_t>(std::ceil(100 * std::expm1(errors[errors.size() * 3 / 4])));
}

Fit fit(const std::vector<Sample>& samples, const MachineCosts& start) {
  assert(!samples.empty());
  return Fitting(samples, start).run();
}

}  // namespace tutti::perf
