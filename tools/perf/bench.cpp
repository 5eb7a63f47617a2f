#include "perf/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <ctime>
#include <new>
#include <numeric>

#include "perf/iterations.h"
#include "perf/pages.h"

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

Bench::Bench(Communicator& all, Communicator& group, const Options& options, Limits limits)
    : all_(all),
      comm_(group),
      options_(options),
      ranks_{group.size(), group.rank(), options.alltoallv_spread},
      limits_(limits),
      buffer_bytes_(options.max_bytes +
                    static_cast<std::size_t>(options.unalign) * size_of(DataType::complex128)),
      input_(allocate()),
      output_(allocate()) {}

Bench::Memory Bench::allocate() const {
  if (options_.shared_buffers > 0) {
    const auto buffer = std::make_shared<Buffer>(Buffer::allocate(comm_, buffer_bytes_));
    return {buffer, buffer->data()};
  }
  try {
    return allocate_pages(buffer_bytes_);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::unavailable,
                fmt::format("rank {}: no memory for two buffers of {} bytes; choose a smaller -e",
                            all_.rank(), buffer_bytes_));
  }
}

Summary Bench::run(const std::function<void(const Row&)>& report) {
  std::vector<int> roots{options_.root.value_or(0)};
  if (!options_.root) {
    roots.resize(static_cast<std::size_t>(comm_.size()));
    std::iota(roots.begin(), roots.end(), 0);
  }
  if (!has_root(options_.what)) roots = {0};
  const std::vector<Op> ops = reduces(options_.what) ? options_.ops : std::vector{Op::sum};
  for (const DataType type : options_.types)
    for (const Op op : ops) {
      scalar_ = Pattern::scalar_element(type, comm_.rank());
      call_options_.premultiplier = op == Op::premul_sum ? scalar_.data() : nullptr;
      for (const int root : roots) {
        warm_up(type, op, root);
        for (int cycle = 0; cycle < options_.run_cycles || options_.run_cycles == 0; ++cycle)
          for (const std::size_t bytes : sizes(options_))
            report(measure_row(call_of(options_.what, type, op, root, bytes, ranks_)));
      }
    }
  std::uint64_t most[] = {comm_.memory_bytes(), 2 * buffer_bytes_};
  all_.all_reduce(std::span<std::uint64_t>(most), Op::max);
  return {wrong_results_, timings_ > 0 ? bus_gb_s_sum_ / timings_ : 0, most[0], most[1]};
}

void Bench::warm_up(DataType type, Op op, int root) {
  for (const std::size_t bytes : sizes(options_)) {
    const Call call = call_of(options_.what, type, op, root, bytes, ranks_);
    for (int i = 0; i < options_.warmup_iterations; ++i)
      perf::run(comm_, call, buffers(call, false, i), call_options_);
  }
}

Row Bench::measure_row(const Call& call) {
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
  row.out_of_place = measure(call, false);
  row.in_place = measure(call, true);
  if (options_.timestamps) row.time_of_day = time_now();
  return row;
}

Timing Bench::measure(const Call& call, bool in_place) {
  Timing timing;
  if (options_.measures_phase() && all_.size() > 1)
    timing.one_way_ns = from_rank0([&] { return limits_.one_way_ns(); });
  std::int64_t iterations = options_.iterations;
  if (iterations == 0)
    iterations = std::max<std::int64_t>(kFewestIterations, options_.skipped_iterations + 1);
  Mean mean;
  while (true) {
    mean = time_iterations(call, in_place, iterations);
    timing.iterations = iterations;
    const double one_us = mean.passed_us * options_.aggregated;
    if (options_.iterations > 0 || is_enough(iterations, one_us)) break;
    iterations = more_iterations(iterations, one_us);
  }
  timing.time_us = options_.cpu_time ? mean.processor_us : mean.passed_us;
  if (options_.per_iteration) timing.per_iteration = gather_iterations();
  timing.algorithm_gb_s = algorithm_gb_s(call, mean.passed_us, comm_.size());
  timing.bus_gb_s = timing.algorithm_gb_s * bus_factor(call.what, comm_.size());
  bus_gb_s_sum_ += timing.bus_gb_s;
  ++timings_;
  const int checks = in_place && !has_in_place(call.what) ? 0 : options_.checks;
  for (int i = 0; i < checks && timing.wrong.value_or(0) == 0; ++i)
    timing.wrong = check(call, in_place);
  return timing;
}

double Bench::time_us(const Call& call, std::string_view algorithm, double least_us) {
  call_options_.algorithm = algorithm;
  double times[3] = {};
  std::int64_t iterations = options_.iterations > 0 ? options_.iterations : kFewestIterations;
  for (int timed = 0; timed < 3;) {
    times[timed] = time_iterations(call, false, iterations).passed_us;
    if (options_.iterations > 0 || is_enough(iterations, times[timed], least_us)) {
      ++timed;
      continue;
    }
    iterations = more_iterations(iterations, times[timed], least_us);
  }
  call_options_.algorithm = {};
  std::sort(std::begin(times), std::end(times));
  return times[1];
}

Bench::Mean Bench::time_iterations(const Call& call, bool in_place, std::int64_t iterations) {
  assert(iterations > 0);
  const bool each = options_.per_iteration || options_.blocking == Blocking::barrier_untimed;
  const Buffers same = buffers(call, in_place, 0);
  iterations_us_.clear();
  perf::run(comm_, call, same, call_options_);
  all_.barrier();
  const double processor_start_us = processor_time_us();
  const auto start = Clock::now();
  double passed_us = 0;
  if (each) {
    for (std::int64_t i = 0; i < iterations; ++i) {
      const auto begin = Clock::now();
      iterate(call, in_place, i, same);
      iterations_us_.push_back(us_since(begin));
      if (options_.blocking == Blocking::barrier_untimed) all_.barrier();
    }
    passed_us = std::accumulate(iterations_us_.begin(), iterations_us_.end(), 0.0);
  } else {
    for (std::int64_t i = 0; i < iterations; ++i) iterate(call, in_place, i, same);
    passed_us = us_since(start);
  }
  const double processor_us = processor_time_us() - processor_start_us;
  const auto calls = static_cast<double>(iterations * options_.aggregated);
  for (double& time_us : iterations_us_) time_us /= options_.aggregated;
  return {combine(passed_us) / calls, combine(processor_us) / calls};
}

/// Makes the calls of one iteration. `same` are the buffers of every call, unless they rotate.
void Bench::iterate(const Call& call, bool in_place, std::int64_t iteration, const Buffers& same) {
  const auto buffers_of = [&](int i) {
    return options_.rotate ? buffers(call, in_place, iteration * options_.aggregated + i) : same;
  };
  const bool barrier = options_.blocking == Blocking::wait_and_barrier;
  if (options_.aggregated == 1) {
    perf::run(comm_, call, buffers_of(0), call_options_);
    if (barrier) all_.barrier();
    return;
  }
  const auto wait_for_all = [&] {
    for (Work& work : works_) work.wait();
    works_.clear();
  };
  for (int i = 0; i < options_.aggregated; ++i) {
    perf::run(comm_, call, buffers_of(i), call_options_, &works_);
    if (barrier || options_.blocking == Blocking::wait) wait_for_all();
    if (barrier) all_.barrier();
  }
  wait_for_all();
}

IterationTimes Bench::gather_iterations() {
  const std::size_t n = iterations_us_.size();
  assert(n > 0 && options_.per_iteration);
  const auto ranks = static_cast<std::size_t>(all_.size());
  std::vector<double> all(n * ranks);
  all_.all_gather(iterations_us_.data(), all.data(), n, DataType::f64);
  IterationTimes times{options_.skipped_iterations, std::vector<double>(n), {}};
  for (auto row = all.begin(); row != all.end(); row += static_cast<std::ptrdiff_t>(n)) {
    times.by_rank.emplace_back(row, row + static_cast<std::ptrdiff_t>(n));
    for (std::size_t i = 0; i < n; ++i)
      times.slowest_us[i] = std::max(times.slowest_us[i], times.by_rank.back()[i]);
  }
  return times;
}

Buffers Bench::buffers(const Call& call, bool in_place, std::int64_t number) const {
  std::size_t shift = static_cast<std::size_t>(options_.unalign) * size_of(call.type);
  if (options_.rotate && call.bytes() > 0)
    shift +=
        call.bytes() * (static_cast<std::size_t>(number) % (options_.max_bytes / call.bytes()));
  if (in_place && has_in_place(call.what))
    return perf::in_place(call, output_.get() + shift, comm_.rank());
  return {input_.get() + shift, output_.get() + shift};
}

/// Returns the number of wrong elements in the blocks that come from each rank.
std::size_t Bench::wrong_blocks(const Pattern& pattern, const Call& call,
                                const std::byte* output) const {
  if (call.what == Operation::gather && comm_.rank() != call.root) return 0;
  const auto own = static_cast<std::size_t>(comm_.rank());
  std::size_t wrong = 0;
  for (int peer = 0; peer < comm_.size(); ++peer) {
    std::size_t first = 0, count = call.count;  // elements of the peer's input
    if (call.what == Operation::alltoall) first = own * call.count;
    if (call.what == Operation::alltoallv) {
      const Call theirs =
          call_of(call.what, call.type, call.op, call.root,
                  call.count * static_cast<std::size_t>(ranks_.count) * size_of(call.type),
                  {ranks_.count, peer, ranks_.spread});
      first = std::accumulate(theirs.to.begin(), theirs.to.begin() + comm_.rank(), std::size_t{0});
      count = call.from[static_cast<std::size_t>(peer)];
    }
    wrong += pattern.wrong_copied(output, first, count, peer);
    output += count * size_of(call.type);
  }
  return wrong;
}

std::int64_t Bench::check(const Call& call, bool in_place) {
  const int rank = comm_.rank(), ranks = comm_.size();
  const auto own_block = static_cast<std::size_t>(rank);
  const Pattern pattern(call.type, reduces(call.what) ? call.op : Op::max, ranks, ++seed_,
                        std::max(call.input_count, call.output_count));
  const Buffers to = buffers(call, in_place, 0);
  const std::size_t moved_by = static_cast<std::size_t>(options_.unalign) * size_of(call.type);
  std::memset(output_.get(), 0xff, call.bytes() + moved_by);
  pattern.write(to.input, 0, call.input_count, rank);
  perf::run(comm_, call, to, call_options_);

  std::size_t wrong = 0;
  switch (call.what) {
    case Operation::all_reduce: wrong = pattern.wrong_reduced(to.output, 0, call.count); break;
    case Operation::reduce:
      if (rank == call.root) wrong = pattern.wrong_reduced(to.output, 0, call.count);
      break;
    case Operation::reduce_scatter:
      wrong = pattern.wrong_reduced(to.output, own_block * call.count, call.count);
      break;
    case Operation::broadcast:
      wrong = pattern.wrong_copied(to.output, 0, call.count, call.root);
      break;
    case Operation::scatter:
      wrong = pattern.wrong_copied(to.output, own_block * call.count, call.count, call.root);
      break;
    case Operation::sendrecv:
      wrong = pattern.wrong_copied(to.output, 0, call.count, (rank + ranks - 1) % ranks);
      break;
    case Operation::gather:
    case Operation::all_gather:
    case Operation::alltoallv:
    case Operation::hypercube:
    case Operation::alltoall: wrong = wrong_blocks(pattern, call, to.output); break;
  }
  std::int64_t sums[2] = {static_cast<std::int64_t>(wrong), wrong > 0 ? 1 : 0};
  all_.all_reduce(std::span<std::int64_t>(sums));
  wrong_results_ += static_cast<int>(sums[1]);
  return sums[0];
}

double Bench::combine(double time) {
  std::vector<double> times(static_cast<std::size_t>(all_.size()));
  all_.all_gather(&time, times.data(), 1, DataType::f64);
  switch (options_.average) {
    case Average::rank0: return times.front();
    case Average::mean: return std::accumulate(times.begin(), times.end(), 0.0) / all_.size();
    case Average::min: return *std::min_element(times.begin(), times.end());
    case Average::max: return *std::max_element(times.begin(), times.end());
  }
  assert(false);
  return time;
}

double Bench::from_rank0(const std::function<double()>& measure) {
  double value = all_.rank() == 0 ? measure() : 0;
  all_.broadcast(std::span<double>(&value, 1), 0);
  return value;
}

}  // namespace tutti::perf
