// Tests of large calls whose stripes are moved by several threads of a rank: the memory that each
// touches, and how they end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "collectives/planning/select.h"
#include "processes.h"
#include "ranks.h"
#include "runtime/engine/worker_pool.h"
#include "threads.h"

#include <fmt/format.h>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

// The cache lines that a thread has read and written.
struct Touched {
  std::vector<std::uintptr_t> read, written;
};
thread_local Touched* touched = nullptr;

void note(std::vector<std::uintptr_t>& lines, const void* data, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(data);
  for (std::uintptr_t line = first / kCacheLine; line * kCacheLine < first + bytes; ++line)
    lines.push_back(line);
}
void note(const CombineArgs& args, std::size_t element_bytes) {
  const std::size_t bytes = args.count * element_bytes;
  for (int k = 0; k < args.inputs; ++k) note(touched->read, args.in[k], bytes);
  for (int k = 0; k < args.outputs; ++k) note(touched->written, args.out[k], bytes);
}
void noted_copy(const CombineArgs& args) {
  note(args, 1);
  combine_copy(args);
}
void noted_sum(const CombineArgs& args) {
  note(args, sizeof(float));
  combine_function(DataType::f32, Op::sum, DataType::f32)(args);
}

struct FreeLines {
  void operator()(float* memory) const { std::free(memory); }
};
using Lines = std::unique_ptr<float[], FreeLines>;
Lines lines_of(std::size_t count) {
  return Lines(static_cast<float*>(std::aligned_alloc(kCacheLine, count * sizeof(float))));
}

// The part of one rank: its stripes, and the memory that the thread of each touches.
struct Part {
  Lines input, output;
  std::size_t inputs, outputs;
  std::vector<std::unique_ptr<HostProgram>> stripes;
  std::vector<Touched> touched;
};

constexpr std::uint64_t kStripes = 3;

Part part_of(Ranks& ranks, int rank, Collective what, const std::string& algorithm,
             std::size_t count) {
  const auto size = static_cast<std::size_t>(ranks.size());
  Part part;
  part.inputs = what == Collective::reduce_scatter ? count * size : count;
  part.outputs = what == Collective::all_gather ? count * size : count;
  part.input = lines_of(part.inputs);
  part.output = lines_of(part.outputs);
  std::fill_n(part.input.get(), part.inputs, static_cast<float>(rank + 1));
  const std::uint32_t number = algorithm_index(algorithm);
  const CallSignature call{what, DataType::f32, Op::sum, 0, count, number};
  const Schedule schedule = algorithms()[number].plan({what, rank, ranks.size(), 0});
  for (std::uint64_t k = 0; k < kStripes; ++k) {
    Program program = compile(schedule, call, Ranks::kMessageBytes, false, {k, kStripes});
    part.stripes.push_back(
        std::make_unique<HostProgram>(std::move(program), ranks.transport(rank)));
    for (BoundStep& step : part.stripes.back()->steps)
      step.combine = step.copies() ? noted_copy : noted_sum;
  }
  part.touched.resize(kStripes);
  return part;
}

void run(Part& part, std::size_t stripe, std::vector<std::byte>& scratch) {
  touched = &part.touched[stripe];
  scratch.resize(part.stripes[stripe]->program.scratch_bytes + 64);
  const CallBuffers buffers{reinterpret_cast<const std::byte*>(part.input.get()),
                            reinterpret_cast<std::byte*>(part.output.get()), scratch.data()};
  static const CallExtras kNone;
  CallBuffers with_extras = buffers;
  with_extras.extras = &kNone;
  Execution execution;
  execution.start(*part.stripes[stripe], with_extras, 0, ResultStores::cached);
  while (!execution.advance()) std::this_thread::yield();
}

// Expects that each cache line of a buffer was touched once, over all threads.
void expect_once(const Part& part, const float* buffer, std::size_t count,
                 std::vector<std::uintptr_t> Touched::*kind, const char* name) {
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(buffer) / kCacheLine;
  const std::size_t lines = (count * sizeof(float) + kCacheLine - 1) / kCacheLine;
  std::vector<int> times(lines, 0);
  for (const Touched& each : part.touched)
    for (const std::uintptr_t line : each.*kind)
      if (line >= first && line < first + lines) ++times[line - first];
  EXPECT_THAT(times, Each(1)) << name;
}

struct Striped {
  Collective what;
  const char* algorithm;
  int ranks;
};

class Stripes : public testing::TestWithParam<Striped> {};

// Over all threads, each cache line of the input is read once and each of the output is written
// once: no line twice, none by two threads.
TEST_P(Stripes, TouchEachLineOnceAndNoneInTwoThreads) {
  const auto [what, algorithm, size] = GetParam();
  Ranks ranks(TransportKind::local, size, 1);
  std::vector<Part> parts;
  // The elements fill whole cache lines, whose number is a prime.
  constexpr std::size_t kCount = 16 * 997;
  for (int rank = 0; rank < size; ++rank)
    parts.push_back(part_of(ranks, rank, what, algorithm, kCount));
  std::vector<std::vector<std::byte>> scratch(parts.size() * kStripes);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < parts.size(); ++rank)
      for (std::size_t k = 0; k < kStripes; ++k)
        threads.emplace_back([&, rank, k] { run(parts[rank], k, scratch[rank * kStripes + k]); });
  }
  const float sum = static_cast<float>(size * (size + 1)) / 2;
  for (const Part& part : parts) {
    for (std::size_t i = 0; i < part.outputs; ++i)
      ASSERT_EQ(part.output[i],
                what == Collective::all_gather ? static_cast<float>(i / kCount + 1) : sum);
    expect_once(part, part.input.get(), part.inputs, &Touched::read, "input");
    expect_once(part, part.output.get(), part.outputs, &Touched::written, "output");
    for (const Touched& each : part.touched)
      EXPECT_GT(each.read.size(), kCount / 16 / kStripes / 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Over, Stripes,
                         testing::Values(Striped{Collective::all_reduce, "ring", 2},
                                         Striped{Collective::all_reduce, "all_pairs", 3},
                                         Striped{Collective::all_gather, "ring", 3},
                                         Striped{Collective::all_gather, "all_pairs", 2},
                                         Striped{Collective::reduce_scatter, "all_pairs", 4}),
                         [](const auto& param) {
                           return fmt::format("{}_{}_{}", to_string(param.param.what),
                                              param.param.algorithm, param.param.ranks);
                         });

constexpr std::size_t kLarge = (7u << 20) / sizeof(float) + 5;  // It has three stripes.

Config threaded(const char* transports, int threads) {
  Config config = quick_config(transports);
  config.threads = threads;
  return config;
}

class WorkerPools : public testing::TestWithParam<const char*> {};

// The bits are the same with any number of threads, in blocking and asynchronous calls.
TEST_P(WorkerPools, EveryLargeCallGivesTheSameBitsAsOneThreadDoes) {
  std::vector<std::vector<float>> bits;
  for (const int threads : {1, 3}) {
    std::vector<float> result;
    EXPECT_THAT(
        run_ranks(3, threaded(GetParam(), threads),
                  [&](Communicator& comm) {
                    std::vector<float> data(kLarge), out(kLarge), all(3 * kLarge);
                    std::mt19937 random(static_cast<unsigned>(comm.rank()));
                    for (float& value : data) value = static_cast<float>(random()) / 1e6f;
                    comm.all_reduce(data.data(), out.data(), kLarge, DataType::f32, Op::sum);
                    comm.broadcast(std::span(data), 1);
                    Work work = comm.all_reduce_async(std::span(out), Op::sum);
                    work.wait();
                    comm.all_gather(out.data(), all.data(), kLarge, DataType::f32);
                    comm.reduce_scatter(all.data(), out.data(), kLarge, DataType::f32, Op::max);
                    comm.all_reduce(std::span(data), Op::sum,
                                    {.accumulate = Accumulate::reproducible});
                    if (comm.rank() != 2) return;
                    result = out;
                    result.insert(result.end(), data.begin(), data.end());
                    result.insert(result.end(), all.begin(), all.end());
                  }),
        Each(IsEmpty()));
    bits.push_back(result);
  }
  EXPECT_TRUE(bits[0] == bits[1]);
}

TEST_P(WorkerPools, ARankThatNeverComesIsATimeoutAndTheBuffersAreFreeAfterwards) {
  std::atomic<bool> over = false;
  EXPECT_THAT(
      run_ranks(
          2, threaded(GetParam(), 3),
          [&](Communicator& comm) {
            std::vector<float> data(kLarge, 1);
            if (comm.rank() == 1) return over.wait(false);
            EXPECT_THAT(
                outcome_of([&] { comm.all_reduce(std::span(data), Op::sum, {.timeout = 100ms}); }),
                AllOf(StartsWith("timeout: rank 0 of 2"), HasSubstr("rank 1 has not called it")));
            over = true;
            over.notify_one();
          }),
      Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Over, WorkerPools, testing::Values("local", "shm"),
                         [](const auto& param) { return std::string(param.param); });

TEST(WorkerPoolProcesses, AKilledRankEndsALargeCallInAllThreads) {
  const int port = unused_port();
  Processes ranks(2, [&](int rank) {
    set_environment(rank, 2, port);
    Communicator comm = Communicator::from_env(threaded("shm", 4));
    std::vector<float> data(4 * kLarge, 1);
    for (int call = 0;; ++call) {
      if (rank == 1 && call == 3) raise(SIGKILL);
      comm.all_reduce(std::span(data), Op::max);
    }
  });
  EXPECT_THAT(ranks.outcome(0), AllOf(StartsWith("peer_lost: "), HasSubstr("rank 1 is lost")));
}

TEST(WorkerPoolProcesses, AForkedChildLetsTheThreadsBe) {
  std::vector<Communicator> comms = Communicator::in_process(1, threaded("local", 3));
  std::vector<float> data(kLarge, 1), out(kLarge);
  comms[0].all_reduce(data.data(), out.data(), kLarge, DataType::f32, Op::sum);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    comms.clear();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(out, data);
}

}  // namespace
}  // namespace tutti::test
