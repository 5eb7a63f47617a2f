// Collectives that kernels run, where two things meet: two streams in groups of two communicators,
// an abort and a kernel that leaves, an end and a callback for which nobody waits, a shrink and
// buffers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <tutti/tutti.hpp>

#include "tests/kernels/gpu_buffers.h"
#include "tests/runtime/threads.h"

namespace tutti::test {
namespace {

using std::chrono::milliseconds;

Config by_rank(const char* transports) {
  Config config = quick_config(transports);
  config.device = "rank";
  config.timeout = std::chrono::seconds(10);
  return config;
}

bool comes_true(const std::atomic<bool>& sign) {
  for (int waited = 0; waited < 10'000 && !sign; ++waited)
    std::this_thread::sleep_for(milliseconds(1));
  return sign;
}

// A call that no stream orders may end in another thread before the one that makes it goes on.
TEST(DeviceMeetings, ACallAndTheEndOfItsKernel) {
  std::vector<Communicator> ranks = Communicator::in_process(2, by_rank("auto"));
  for (int i = 0; i < 300; ++i) {
    std::vector<Work> works;
    for (int call = 0; call < 4; ++call)
      for (Communicator& comm : ranks) works.push_back(comm.barrier_async());
    for (Work& work : works) work.wait();
  }
}

TEST(DeviceMeetings, GroupsOfTwoCommunicatorsOnTwoStreamsReadWhatIsBeforeThemOnTheirs) {
  EXPECT_THAT(run_ranks(2, by_rank("shm"),
                        [](Communicator& comm) {
                          const GpuContext context(comm.device());
                          Communicator other = comm.dup();
                          const GpuStream late, early;
                          const GpuBuffer<int> x(1000, 0), y(1000, 7), z(1000, 1), w(1000, 1);
                          const PinnedBuffer<int> five(1000, 5);
                          late.run([] { std::this_thread::sleep_for(milliseconds(100)); });
                          late.copy(x.data(), five.view().data(), 1000 * sizeof(int));
                          const auto call = [](Communicator& on, const GpuBuffer<int>& data,
                                               const GpuStream& stream, Group& group) {
                            on.all_reduce(data.data(), data.data(), 1000, DataType::int32, Op::sum,
                                          {.group = &group, .stream = stream.handle()});
                          };
                          Group first, second;
                          call(comm, x, late, first);
                          call(other, z, late, first);
                          Work one = first.end_async();
                          call(comm, y, early, second);
                          call(other, w, early, second);
                          Work two = second.end_async();
                          one.wait();
                          two.wait();
                          EXPECT_THAT(x.read(), Each(10));
                          EXPECT_THAT(y.read(), Each(14));
                        }),
              Each(IsEmpty()));
}

TEST(DeviceMeetings, AnAbortWhileAKernelLeavesLetsTheStreamGoOn) {
  std::mt19937 random(1);
  std::chrono::nanoseconds whole{0};  // how long the calls take where nobody aborts them
  for (int turn = 0; turn < 300; ++turn) {
    std::vector<Communicator> comms = Communicator::in_process(1, by_rank("auto"));
    const GpuContext context(0);
    const GpuStream stream;
    const GpuBuffer<int> data(1000, 1);
    std::vector<Work> works;
    const auto began = std::chrono::steady_clock::now();
    for (int call = 0; call < 6; ++call)
      works.push_back(comms[0].all_reduce_async(data.data(), data.data(), 1000, DataType::int32,
                                                Op::max, {.stream = stream.handle()}));
    std::atomic<bool> passed{false};
    stream.run([&] { passed = true; });
    if (turn < 5) {
      for (Work& work : works) work.wait();
      whole = std::chrono::steady_clock::now() - began;
      continue;
    }
    std::this_thread::sleep_until(began + whole * (random() % 1000) / 1000);
    comms[0].abort("enough");
    for (Work& work : works) outcome_of([&] { work.wait(); });
    ASSERT_TRUE(comes_true(passed)) << "turn " << turn;
  }
}

TEST(DeviceMeetings, ACallbackForWhichNobodyWaitsIsCalled) {
  EXPECT_THAT(run_ranks(1, by_rank("shm"),
                        [](Communicator& comm) {
                          const GpuContext context(0);
                          const GpuStream stream;
                          const GpuBuffer<int> data(10, 1);
                          for (int turn = 0; turn < 2000; ++turn) {
                            std::atomic<bool> ended{false};
                            Work work =
                                comm.all_reduce_async(data.data(), data.data(), 10, DataType::int32,
                                                      Op::max, {.stream = stream.handle()});
                            work.then([&](const Error*) { ended = true; });
                            if (!comes_true(ended)) {
                              ADD_FAILURE() << "turn " << turn;
                              return work.wait();
                            }
                          }
                        }),
              Each(IsEmpty()));
}

TEST(DeviceMeetings, TheRanksThatAreLeftKeepTheirGpusAndTheirBuffers) {
  EXPECT_THAT(run_ranks(3, by_rank("shm"),
                        [](Communicator& comm) {
                          const GpuContext context(comm.device());
                          const GpuStream stream;
                          const GpuBuffer<int> data(1000, 1);
                          const auto reduce = [&](Communicator& on) {
                            on.all_reduce(data.data(), data.data(), 1000, DataType::int32, Op::sum,
                                          {.stream = stream.handle()});
                          };
                          reduce(comm);
                          if (comm.rank() == 0) return comm.abort("rank 0 leaves");
                          EXPECT_THAT(outcome_of([&] { reduce(comm); }), Not(IsEmpty()));
                          const int without[] = {0};
                          Communicator less = comm.shrink_without(without, std::chrono::seconds(5));
                          data.fill(1);
                          reduce(less);
                          EXPECT_THAT(data.read(), Each(2));
                        }),
              Each(IsEmpty()));
}

// Makes two ranks, has each make three calls on a stream, and ends them.
void make_call_and_end(bool by_abort) {
  EXPECT_THAT(run_ranks(2, by_rank("shm"),
                        [by_abort](Communicator& comm) {
                          const GpuContext context(comm.device());
                          const GpuStream stream;
                          const GpuBuffer<int> data(1000, 1);
                          std::vector<Work> works;
                          for (int call = 0; call < 3; ++call)
                            works.push_back(comm.all_reduce_async(data.data(), data.data(), 1000,
                                                                  DataType::int32, Op::sum,
                                                                  {.stream = stream.handle()}));
                          if (by_abort) {
                            comm.abort("enough");
                            for (Work& work : works) outcome_of([&] { work.wait(); });
                            return;
                          }
                          for (Work& work : works) work.wait();
                          EXPECT_THAT(data.read(), Each(8));
                        }),
              Each(IsEmpty()));
}

TEST(DeviceMeetings, CommunicatorsOfWhichNoOtherIsThereLeaveNoMemory) {
  const GpuContext first(0), second(1);  // The program keeps the contexts.
  std::size_t after_some = 0;
  for (int turn = 0; turn < 20; ++turn) {
    make_call_and_end(false);
    if (turn == 3) after_some = allocations();
  }
  EXPECT_LE(allocations(), after_some);
}

TEST(DeviceMeetings, CommunicatorsThatAreAbortedLeaveTheCountsOfTheirBlocksAlone) {
  constexpr std::size_t kTurns = 20, kRanks = 2;
  const GpuContext first(0), second(1);
  make_call_and_end(true);
  const std::size_t before = allocations();
  for (std::size_t turn = 0; turn < kTurns; ++turn) make_call_and_end(true);
  constexpr std::size_t kPagesOfWords = (kTurns * kRanks + 15) / 16;
  EXPECT_LE(allocations(), before + kTurns * kRanks + kPagesOfWords);
  make_call_and_end(false);
}

TEST(DeviceMeetings, ADeadlineNamesOnlyRanksThatHaveNotAnswered) {
  std::atomic<bool> over{false};
  EXPECT_THAT(run_ranks(4, by_rank("auto"),
                        [&](Communicator& comm) {
                          const GpuContext context(comm.device());
                          const GpuStream stream;
                          const GpuBuffer<int> data(1000, 1);
                          if (comm.rank() == 3) {
                            while (!over) std::this_thread::sleep_for(milliseconds(1));
                            return;
                          }
                          const std::string outcome = outcome_of([&] {
                            comm.all_reduce(data.data(), data.data(), 1000, DataType::int32,
                                            Op::sum,
                                            {.timeout = milliseconds(500),
                                             .algorithm = "all_pairs",
                                             .stream = stream.handle()});
                          });
                          over = true;
                          EXPECT_THAT(outcome, HasSubstr("rank 3"));
                        }),
              Each(IsEmpty()));
}

}  // namespace
}  // namespace tutti::test
