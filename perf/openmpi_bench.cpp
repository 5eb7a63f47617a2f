// Open MPI's all-reduce, measured as tutti-perf measures ours: one call, a barrier, calls back to
// back for at least ten milliseconds, the slowest rank's mean; results checked. perf/compare runs
// it.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr double kLeastUs = 10'000;
constexpr long kFewestCalls = 5;
constexpr long kMostCalls = 10'000'000;

struct Buffers {
  std::vector<float> input, output;
};

void call(Buffers& buffers, bool in_place) {
  MPI_Allreduce(in_place ? MPI_IN_PLACE : buffers.input.data(), buffers.output.data(),
                static_cast<int>(buffers.output.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/// The time of so many calls on the slowest rank.
double time_calls(Buffers& buffers, bool in_place, long calls) {
  call(buffers, in_place);
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  for (long i = 0; i < calls; ++i) call(buffers, in_place);
  const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
  double slowest = passed.count();
  MPI_Allreduce(MPI_IN_PLACE, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

double mean_us(Buffers& buffers, bool in_place) {
  long calls = kFewestCalls;
  while (true) {
    const double total_us = time_calls(buffers, in_place, calls);
    const double time_us = total_us / static_cast<double>(calls);
    if (total_us >= kLeastUs || calls >= kMostCalls) return time_us;
    calls = std::clamp(static_cast<long>(1.1 * kLeastUs / std::max(time_us, 1e-3)), calls + 1,
                       std::min(10 * calls, kMostCalls));
  }
}

/// Small integers, so that the sum is exact.
float value(std::size_t i, int rank) {
  return static_cast<float>((7 * i + 13 * static_cast<std::size_t>(rank)) % 101);
}

/// Wrong elements of one call, on all ranks together.
long wrong_elements(Buffers& buffers, bool in_place, int rank, int ranks) {
  std::vector<float>& mine = in_place ? buffers.output : buffers.input;
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = value(i, rank);
  call(buffers, in_place);
  long wrong = 0;
  for (std::size_t i = 0; i < buffers.output.size(); ++i) {
    float expected = 0;
    for (int peer = 0; peer < ranks; ++peer) expected += value(i, peer);
    wrong += buffers.output[i] != expected ? 1 : 0;
  }
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::size_t bytes = argc == 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
  if (bytes < sizeof(float)) {
    if (rank == 0) std::fprintf(stderr, "usage: openmpi_bench <bytes, at least 4>\n");
    MPI_Finalize();
    return 2;
  }
  const std::size_t count = bytes / sizeof(float);
  Buffers buffers{std::vector<float>(count), std::vector<float>(count)};
  long wrong = 0;
  double times[2];
  for (const bool in_place : {false, true}) {
    times[in_place] = mean_us(buffers, in_place);
    wrong += wrong_elements(buffers, in_place, rank, ranks);
  }
  if (rank == 0)
    std::printf("{\"size\": %zu, \"out_of_place\": %.17g, \"in_place\": %.17g, \"nwrong\": %ld}\n",
                count * sizeof(float), times[0], times[1], wrong);
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
