#include "perf/bench.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <ctime>
#include <numeric>

#include "perf/iterations.h"

namespace tutti::perf {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// The processor time of this thread.
double processor_time_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

}  // namespace

Bench::Bench(Team& team, const Options& options, Limits limits)
    : team_(team), options_(options), limits_(limits) {
  for (TeamRank& rank : team.ranks())
    ranks_.push_back(std::make_unique<MeasuredRank>(rank, options));
}

// A call may use the buffers until its Work is done.
Bench::~Bench() {
  for (Work& work : works_) try {
      work.wait();
    } catch (const Error&) {  // The error that ended the measurement is the one that counts.
    }
}

Summary Bench::run(const std::function<void(const Row&)>& report) {
  std::vector<int> roots{options_.root.value_or(0)};
  if (!options_.root) {
    roots.resize(static_cast<std::size_t>(team_.front().group().size()));
    std::iota(roots.begin(), roots.end(), 0);
  }
  if (!has_root(options_.what)) roots = {0};
  const std::vector<Op> ops = reduces(options_.what) ? options_.ops : std::vector{Op::sum};
  for (const DataType type : options_.types)
    for (const Op op : ops) {
      for (const auto& rank : ranks_) rank->choose_reduction(type, op);
      for (const int root : roots) {
        warm_up(type, op, root);
        for (int cycle = 0; cycle < options_.run_cycles || options_.run_cycles == 0; ++cycle)
          for (const std::size_t bytes : sizes(options_))
            report(measure_row(calls(type, op, root, bytes)));
      }
    }
  std::vector<std::uint64_t> own;
  for (TeamRank& rank : team_.ranks()) own.push_back(rank.group().memory_bytes());
  const auto memory = team_.gather(own);
  return {wrong_results_, timings_ > 0 ? bus_gb_s_sum_ / timings_ : 0,
          *std::max_element(memory.begin(), memory.end()), 2 * ranks_.front()->buffer_bytes()};
}

Bench::Calls Bench::calls(DataType type, Op op, int root, std::size_t bytes) const {
  Calls all;
  for (const auto& rank : ranks_) all.push_back(rank->call(type, op, root, bytes));
  return all;
}

void Bench::warm_up(DataType type, Op op, int root) {
  for (const std::size_t bytes : sizes(options_)) {
    const Calls all = calls(type, op, root, bytes);
    place_buffers(all, false);
    for (int i = 0; i < options_.warmup_iterations; ++i) run_once(all, false, i);
  }
}

Row Bench::measure_row(const Calls& calls) {
  const Call& call = calls.front();
  Row row;
  row.size_bytes = call.bytes();
  row.count = call.count;
  row.type = name_of(call.type);
  // sendrecv does not reduce, but nccl-tests prints the operation.
  const bool has_op = reduces(call.what) || call.what == Operation::sendrecv;
  row.op = has_op ? name_of(call.op) : "none";
  row.root = has_root(call.what) ? call.root : -1;
  if (options_.show_limits)
    row.limit_us = from_rank0([&] { return limits_.all_reduce_us(call.bytes()); });
  row.out_of_place = measure(calls, false);
  row.in_place = measure(calls, true);
  if (options_.timestamps) row.time_of_day = time_now();
  return row;
}

Timing Bench::measure(const Calls& calls, bool in_place) {
  Timing timing;
  const Call& call = calls.front();
  const int group_size = team_.front().group().size();
  if (options_.measures_phase() && team_.front().all.size() > 1)
    timing.one_way_ns = from_rank0([&] { return limits_.one_way_ns(); });
  std::int64_t iterations = options_.iterations;
  if (iterations == 0)
    iterations = std::max<std::int64_t>(kFewestIterations, options_.skipped_iterations + 1);
  Mean mean;
  while (true) {
    mean = time_iterations(calls, in_place, iterations);
    timing.iterations = iterations;
    const double one_us = mean.passed_us * options_.aggregated;
    if (options_.iterations > 0 || is_enough(iterations, one_us)) break;
    iterations = more_iterations(iterations, one_us);
  }
  timing.time_us = options_.cpu_time ? mean.processor_us : mean.passed_us;
  if (options_.per_iteration) timing.per_iteration = gather_iterations();
  timing.algorithm_gb_s = algorithm_gb_s(call, mean.passed_us, group_size);
  timing.bus_gb_s = timing.algorithm_gb_s * bus_factor(call.what, group_size);
  bus_gb_s_sum_ += timing.bus_gb_s;
  ++timings_;
  const int checks = in_place && !has_in_place(call.what) ? 0 : options_.checks;
  for (int i = 0; i < checks && timing.wrong.value_or(0) == 0; ++i)
    timing.wrong = check(calls, in_place);
  return timing;
}

double Bench::time_us(const Call& call, std::string_view algorithm, double least_us) {
  assert(ranks_.size() == 1);
  ranks_.front()->choose_algorithm(algorithm);
  double times[3] = {};
  std::int64_t iterations = options_.iterations > 0 ? options_.iterations : kFewestIterations;
  for (int timed = 0; timed < 3;) {
    times[timed] = time_iterations({call}, false, iterations).passed_us;
    if (options_.iterations > 0 || is_enough(iterations, times[timed], least_us)) {
      ++timed;
      continue;
    }
    iterations = more_iterations(iterations, times[timed], least_us);
  }
  ranks_.front()->choose_algorithm({});
  std::sort(std::begin(times), std::end(times));
  return times[1];
}

Bench::Mean Bench::time_iterations(const Calls& calls, bool in_place, std::int64_t iterations) {
  assert(iterations > 0);
  const bool each = options_.per_iteration || options_.blocking == Blocking::barrier_untimed;
  iterations_us_.clear();
  place_buffers(calls, in_place);
  run_once(calls, in_place, 0);
  team_.barrier();
  const double processor_start_us = processor_time_us();
  const auto start = Clock::now();
  double passed_us = 0;
  if (each) {
    for (std::int64_t i = 0; i < iterations; ++i) {
      const auto begin = Clock::now();
      iterate(calls, in_place, i);
      synchronize();
      iterations_us_.push_back(us_since(begin));
      if (options_.blocking == Blocking::barrier_untimed) team_.barrier();
    }
    passed_us = std::accumulate(iterations_us_.begin(), iterations_us_.end(), 0.0);
  } else {
    for (std::int64_t i = 0; i < iterations; ++i) iterate(calls, in_place, i);
    synchronize();
    passed_us = us_since(start);
  }
  const double processor_us = processor_time_us() - processor_start_us;
  wait_for(0);
  const auto count = static_cast<double>(iterations * options_.aggregated);
  for (double& time_us : iterations_us_) time_us /= options_.aggregated;
  return {combine(passed_us) / count, combine(processor_us) / count};
}

/// Makes one call and waits for its end.
void Bench::run_once(const Calls& calls, bool in_place, std::int64_t number) {
  if (!team_.on_gpus())
    return ranks_.front()->run(calls.front(), buffers(0, calls, in_place, number));
  start(calls, in_place, number);
  wait_for(0);
}

/// Makes the calls of one iteration. Those on GPUs may still be under way when it returns.
void Bench::iterate(const Calls& calls, bool in_place, std::int64_t iteration) {
  const bool barrier = options_.blocking == Blocking::wait_and_barrier;
  if (options_.aggregated == 1 && !team_.on_gpus()) {
    run_once(calls, in_place, iteration);
    if (barrier) team_.barrier();
    return;
  }
  for (int i = 0; i < options_.aggregated; ++i) {
    start(calls, in_place, iteration * options_.aggregated + i);
    if (barrier || options_.blocking == Blocking::wait) wait_for(0);
    if (barrier) team_.barrier();
  }
  if (!team_.on_gpus()) wait_for(0);
}

/// Starts one call on each rank.
void Bench::start(const Calls& calls, bool in_place, std::int64_t number) {
  if (team_.on_gpus()) wait_for((most_queued(calls.front()) - 1) * ranks_.size());
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    ranks_[i]->start(calls[i], buffers(i, calls, in_place, number), works_);
}

void Bench::place_buffers(const Calls& calls, bool in_place) {
  same_.clear();
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    same_.push_back(ranks_[i]->buffers(calls[i], in_place, 0));
}

Buffers Bench::buffers(std::size_t rank, const Calls& calls, bool in_place,
                       std::int64_t number) const {
  return options_.rotate ? ranks_[rank]->buffers(calls[rank], in_place, number) : same_[rank];
}

/// Returns how many calls a rank gives to its stream ahead.
std::size_t Bench::most_queued(const Call& call) const {
  if (team_.front().all.device() >= 0) return kQueuedCalls;
  const std::size_t pinned_bytes = 2 * std::max<std::size_t>(call.bytes(), 1);
  return std::clamp<std::size_t>(kQueuedBytes / pinned_bytes, 1, kQueuedCalls);
}

/// Waits for the streams of all GPUs.
void Bench::synchronize() const {
  for (const auto& rank : ranks_) rank->synchronize();
}

/// Waits until so many of the calls that were started are left, the last ones, and throws the error
/// of one that has failed.
void Bench::wait_for(std::size_t works_left) {
  if (works_.size() <= works_left) return;
  const auto end = works_.end() - static_cast<std::ptrdiff_t>(works_left);
  for (auto work = works_.begin(); work != end; ++work) work->wait();
  works_.erase(works_.begin(), end);
  if (works_left == 0) synchronize();
}

IterationTimes Bench::gather_iterations() {
  const std::size_t n = iterations_us_.size();
  assert(n > 0 && options_.per_iteration);
  std::vector<double> own;  // the same for each rank of the team
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    own.insert(own.end(), iterations_us_.begin(), iterations_us_.end());
  const std::vector<double> all = team_.gather(own);
  IterationTimes times{options_.skipped_iterations, std::vector<double>(n), {}};
  for (auto row = all.begin(); row != all.end(); row += static_cast<std::ptrdiff_t>(n)) {
    times.by_rank.emplace_back(row, row + static_cast<std::ptrdiff_t>(n));
    for (std::size_t i = 0; i < n; ++i)
      times.slowest_us[i] = std::max(times.slowest_us[i], times.by_rank.back()[i]);
  }
  return times;
}

/// Makes one call with other data than before, and returns the number of wrong elements on all
/// ranks.
std::int64_t Bench::check(const Calls& calls, bool in_place) {
  ++seed_;
  for (std::size_t i = 0; i < ranks_.size(); ++i) ranks_[i]->write_input(calls[i], in_place, seed_);
  place_buffers(calls, in_place);
  run_once(calls, in_place, 0);
  std::vector<std::int64_t> own;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    own.push_back(static_cast<std::int64_t>(ranks_[i]->count_wrong(calls[i], in_place, seed_)));
  std::int64_t sum = 0;
  for (const std::int64_t wrong : team_.gather(own)) {
    sum += wrong;
    wrong_results_ += wrong > 0 ? 1 : 0;
  }
  return sum;
}

double Bench::combine(double time) {
  const std::vector<double> times = team_.gather_one(time);
  switch (options_.average) {
    case Average::rank0: return times.front();
    case Average::mean:
      return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
    case Average::min: return *std::min_element(times.begin(), times.end());
    case Average::max: return *std::max_element(times.begin(), times.end());
  }
  assert(false);
  return time;
}

double Bench::from_rank0(const std::function<double()>& measure) {
  return team_.gather_one(team_.has_rank0() ? measure() : 0).front();
}

}  // namespace tutti::perf
