#include "perf/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

namespace tutti::perf {
namespace {

constexpr double kLeastUs = 10'000;       // of calls, where -n does not say how many
constexpr std::int64_t kFewestCalls = 5;  // a single one may have been held up for that long
constexpr std::int64_t kMostCalls = 10'000'000;

}  // namespace

Bench::Bench(Communicator& comm, const Options& options, Limits limits)
    : comm_(comm), options_(options), limits_(limits), input_(allocate()), output_(allocate()) {
  require_root(options_, comm_.size());
}

Bench::Memory Bench::allocate() const {
  constexpr std::size_t kPage = 4096;
  const std::size_t bytes = (options_.max_bytes / kPage + 1) * kPage;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes)));
  if (!memory)
    throw Error(ErrorKind::unavailable,
                fmt::format("rank {}: no memory for two buffers of {} bytes; choose a smaller -e",
                            comm_.rank(), bytes));
  std::memset(memory.get(), 0, bytes);
  return memory;
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
    for (const Op op : ops)
      for (const int root : roots) {
        warm_up(type, op, root);
        for (const std::size_t bytes : sizes(options_))
          report(measure_row(call_of(options_.what, type, op, root, bytes, comm_.size())));
      }
  return {wrong_results_, timings_ > 0 ? bus_gb_s_sum_ / timings_ : 0};
}

void Bench::warm_up(DataType type, Op op, int root) {
  for (const std::size_t bytes : sizes(options_)) {
    const Call call = call_of(options_.what, type, op, root, bytes, comm_.size());
    for (int i = 0; i < options_.warmup_iterations; ++i)
      perf::run(comm_, call, buffers(call, false, i));
  }
}

Row Bench::measure_row(const Call& call) {
  Row row;
  row.size_bytes = call.bytes();
  row.count = call.count;
  row.type = name_of(call.type);
  row.op = reduces(call.what) ? to_string(call.op) : "none";
  row.root = has_root(call.what) ? call.root : -1;
  if (options_.show_limits)
    row.limit_us = from_rank0([&] { return limits_.all_reduce_us(call.bytes()); });
  row.out_of_place = measure(call, false);
  row.in_place = measure(call, true);
  return row;
}

Timing Bench::measure(const Call& call, bool in_place) {
  Timing timing;
  if (options_.measures_phase() && comm_.size() > 1)
    timing.one_way_ns = from_rank0([&] { return limits_.one_way_ns(); });
  std::int64_t calls = options_.iterations > 0 ? options_.iterations : kFewestCalls;
  while (true) {
    const double total_us = time_calls(call, in_place, calls);
    timing.time_us = total_us / static_cast<double>(calls);
    timing.iterations = calls;
    if (options_.iterations > 0 || total_us >= kLeastUs || calls >= kMostCalls) break;
    // At most tenfold: the first calls are slow, and would promise too much.
    const double wanted = 1.1 * kLeastUs / std::max(timing.time_us, 1e-3);
    calls =
        std::clamp(static_cast<std::int64_t>(wanted), calls + 1, std::min(10 * calls, kMostCalls));
  }
  timing.algorithm_gb_s = algorithm_gb_s(call, timing.time_us, comm_.size());
  timing.bus_gb_s = timing.algorithm_gb_s * bus_factor(call.what, comm_.size());
  bus_gb_s_sum_ += timing.bus_gb_s;
  ++timings_;
  for (int i = 0; i < options_.checks && timing.wrong.value_or(0) == 0; ++i)
    timing.wrong = check(call, in_place);
  return timing;
}

double Bench::time_calls(const Call& call, bool in_place, std::int64_t calls) {
  perf::run(comm_, call, buffers(call, in_place, 0));
  comm_.barrier();
  const auto start = std::chrono::steady_clock::now();
  if (options_.rotate) {
    for (std::int64_t i = 0; i < calls; ++i) perf::run(comm_, call, buffers(call, in_place, i));
  } else {
    const Buffers same = buffers(call, in_place, 0);
    for (std::int64_t i = 0; i < calls; ++i) perf::run(comm_, call, same);
  }
  const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
  return combine(passed.count());
}

Buffers Bench::buffers(const Call& call, bool in_place, std::int64_t iteration) const {
  std::size_t shift = 0;
  if (options_.rotate && call.bytes() > 0)
    shift =
        call.bytes() * (static_cast<std::size_t>(iteration) % (options_.max_bytes / call.bytes()));
  if (in_place) return perf::in_place(call, output_.get() + shift, comm_.rank());
  return {input_.get() + shift, output_.get() + shift};
}

/// Of the blocks that come from each rank.
std::size_t Bench::wrong_blocks(const Pattern& pattern, const Call& call,
                                const std::byte* output) const {
  if (call.what == Collective::gather && comm_.rank() != call.root) return 0;
  const std::size_t first =
      call.what == Collective::all_to_all ? static_cast<std::size_t>(comm_.rank()) * call.count : 0;
  std::size_t wrong = 0;
  for (int peer = 0; peer < comm_.size(); ++peer)
    wrong += pattern.wrong_copied(
        output + static_cast<std::size_t>(peer) * call.count * size_of(call.type), first,
        call.count, peer);
  return wrong;
}

std::int64_t Bench::check(const Call& call, bool in_place) {
  const int rank = comm_.rank(), ranks = comm_.size();
  const auto own_block = static_cast<std::size_t>(rank);
  const Pattern pattern(call.type, reduces(call.what) ? call.op : Op::max, ranks, ++seed_,
                        std::max(call.input_count, call.output_count));
  const Buffers to = buffers(call, in_place, 0);
  std::memset(output_.get(), 0xff, call.bytes());
  pattern.write(to.input, 0, call.input_count, rank);
  perf::run(comm_, call, to);

  std::size_t wrong = 0;
  switch (call.what) {
    case Collective::all_reduce: wrong = pattern.wrong_reduced(to.output, 0, call.count); break;
    case Collective::reduce:
      if (rank == call.root) wrong = pattern.wrong_reduced(to.output, 0, call.count);
      break;
    case Collective::reduce_scatter:
      wrong = pattern.wrong_reduced(to.output, own_block * call.count, call.count);
      break;
    case Collective::broadcast:
      wrong = pattern.wrong_copied(to.output, 0, call.count, call.root);
      break;
    case Collective::scatter:
      wrong = pattern.wrong_copied(to.output, own_block * call.count, call.count, call.root);
      break;
    case Collective::gather:
    case Collective::all_gather:
    case Collective::all_to_all: wrong = wrong_blocks(pattern, call, to.output); break;
    case Collective::barrier: break;
  }
  std::int64_t sums[2] = {static_cast<std::int64_t>(wrong), wrong > 0 ? 1 : 0};
  comm_.all_reduce(std::span<std::int64_t>(sums));
  wrong_results_ += static_cast<int>(sums[1]);
  return sums[0];
}

double Bench::combine(double time) {
  std::vector<double> times(static_cast<std::size_t>(comm_.size()));
  comm_.all_gather(&time, times.data(), 1, DataType::f64);
  switch (options_.average) {
    case Average::rank0: return times.front();
    case Average::mean: return std::accumulate(times.begin(), times.end(), 0.0) / comm_.size();
    case Average::min: return *std::min_element(times.begin(), times.end());
    case Average::max: return *std::max_element(times.begin(), times.end());
  }
  assert(false);
  return time;
}

double Bench::from_rank0(const std::function<double()>& measure) {
  double value = comm_.rank() == 0 ? measure() : 0;
  comm_.broadcast(std::span<double>(&value, 1), 0);
  return value;
}

}  // namespace tutti::perf
