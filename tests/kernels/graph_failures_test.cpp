// Captured calls whose communicator fails or ends, and what a peer that is gone does to a replay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/kernels/graphs.h"

namespace tutti::test {
namespace {

using std::chrono::milliseconds;
using testing::SizeIs;

TEST_P(Graphs, AReplayAfterTheEndOfTheCommunicatorDoesNothingAndGoesOn) {
  Config config = this->config();
  config.log_level = LogLevel::info;
  EXPECT_THAT(run(2, config,
                  [](Communicator& comm) {
                    const GpuStream stream;
                    const GpuBuffer<int> data(kCount, 1);
                    std::vector<int> host(kCount, 1);
                    std::optional<Communicator> dying(std::move(comm));
                    GpuGraph graph(stream, [&] {
                      dying->all_reduce(data.data(), data.data(), kCount, kInt, Op::sum,
                                        {.stream = stream.handle()});
                      dying->all_reduce(host.data(), host.data(), kCount, kInt, Op::sum,
                                        {.stream = stream.handle()});
                    });
                    graph.launch(stream);
                    dying.reset();
                    for (int replay = 0; replay < 3; ++replay) graph.launch(stream);
                    bool passed = false;
                    stream.run([&] { passed = true; });
                    stream.synchronize();
                    EXPECT_TRUE(passed);
                    graph = GpuGraph();
                  }),
              Each(IsEmpty()));
  EXPECT_THAT(lines_.with("CUDA graphs hold 2 calls of the communicator, which ends"), SizeIs(2));
}

TEST_P(Graphs, GraphsThatOutliveTheirCommunicatorsLeaveNoMemory) {
  // With its last user a GPU's context takes all that was allocated in it, of which the stand-in
  // does not know.
  std::vector<std::unique_ptr<const GpuContext>> contexts;
  for (int ordinal = 0; ordinal < gpu_count(); ++ordinal)
    contexts.push_back(std::make_unique<const GpuContext>(ordinal));
  std::size_t after_some = 0;
  for (int turn = 0; turn < 20; ++turn) {
    EXPECT_THAT(run(2, config(),
                    [](Communicator& comm) {
                      const GpuStream stream;
                      const GpuBuffer<int> data(kCount, 1);
                      std::optional<Communicator> dying(std::move(comm));
                      const GpuGraph graph(stream, [&] {
                        dying->all_reduce(data.data(), data.data(), kCount, kInt, Op::sum,
                                          {.stream = stream.handle()});
                      });
                      dying.reset();
                      graph.launch(stream);
                      stream.synchronize();
                    }),
                Each(IsEmpty()));
    await_freed_graphs();  // what they have is not used again before
    if (turn == 3) after_some = allocations();
  }
  // Blocks are kept for later uses: as many as the two ranks have ever had at once.
  EXPECT_LE(allocations(), after_some + 4);
}

TEST_P(Graphs, CommunicatorsAndGraphsEndInAnyOrder) {
  std::vector<int> order{0, 1, 2};
  do {
    EXPECT_THAT(run(2, config(),
                    [&](Communicator& comm) {
                      const GpuStream stream;
                      const GpuBuffer<int> a(kCount, 1), b(kCount, 1);
                      std::optional<Communicator> second(comm.dup()), first(std::move(comm));
                      std::optional<GpuGraph> graph(std::in_place, stream, [&] {
                        for (const bool of_first : {true, false, true})
                          (of_first ? first : second)
                              ->all_reduce(of_first ? a.data() : b.data(),
                                           of_first ? a.data() : b.data(), kCount, kInt, Op::max,
                                           {.stream = stream.handle()});
                      });
                      for (const int ended : order) {
                        for (int launch = 0; graph && launch < 3; ++launch) graph->launch(stream);
                        if (ended == 0) first.reset();
                        if (ended == 1) second.reset();
                        if (ended == 2) graph.reset();
                      }
                      stream.synchronize();
                    }),
                Each(IsEmpty()));
  } while (std::ranges::next_permutation(order).found);
}

TEST_P(Graphs, ADeadlineCountsFromEachReplayAndLetsTheStreamGoOn) {
  Config config = this->config();
  config.timeout = milliseconds(2000);
  std::atomic<bool> over{false};
  EXPECT_THAT(run(2, config,
                  [&](Communicator& comm) {
                    const GpuStream stream;
                    const GpuBuffer<int> data(kCount, 1);
                    const GpuGraph graph(stream, [&] {
                      for (int call = 0; call < 2; ++call)
                        comm.all_reduce(data.data(), data.data(), kCount, kInt, Op::sum,
                                        {.stream = stream.handle()});
                    });
                    // The deadline would have passed, if it counted from the capture.
                    std::this_thread::sleep_for(milliseconds(2050));
                    graph.launch(stream);
                    stream.synchronize();
                    EXPECT_THAT(data.read(), Each(4));
                    if (comm.rank() == 1) {
                      while (!over) std::this_thread::sleep_for(milliseconds(1));
                      return;
                    }
                    for (int replay = 0; replay < 3; ++replay) graph.launch(stream);
                    stream.synchronize();
                    over = true;
                    EXPECT_THAT(outcome_of([&] { comm.barrier(); }),
                                AllOf(StartsWith("timeout: "), HasSubstr("rank 1")));
                  }),
              Each(IsEmpty()));
  EXPECT_THAT(lines_.with("a call that a CUDA graph has started failed"), SizeIs(1));
}

TEST_P(Graphs, AnAbortInTheMiddleOfAReplayLetsTheStreamGoOnAndTheGraphBeReplayed) {
  std::atomic<bool> over{false};
  EXPECT_THAT(run(2, config(),
                  [&](Communicator& comm) {
                    const GpuStream stream;
                    const GpuBuffer<int> data(100'000, 1);
                    const GpuGraph graph(stream, [&] {
                      comm.all_reduce(data.data(), data.data(), 100'000, kInt, Op::sum,
                                      {.stream = stream.handle()});
                      comm.barrier({.stream = stream.handle()});
                    });
                    graph.launch(stream);
                    stream.synchronize();
                    if (comm.rank() == 1) {
                      while (!over) std::this_thread::sleep_for(milliseconds(1));
                      return;
                    }
                    graph.launch(stream);
                    std::thread([&] { comm.abort("the test ends it"); }).join();
                    stream.synchronize();
                    graph.launch(stream);
                    stream.synchronize();
                    over = true;
                  }),
              Each(IsEmpty()));
}

TEST_P(Graphs, ACommunicatorWithFewerRanksIsCapturedAfterAFailure) {
  if (config().transports != "shm" && config().transports != "tcp") return;  // none can shrink
  EXPECT_THAT(run(3, config(),
                  [&](Communicator& comm) {
                    const GpuStream stream;
                    const GpuBuffer<int> data(kCount, 1);
                    const auto capture = [&](Communicator& on) {
                      return GpuGraph(stream, [&] {
                        on.all_reduce(data.data(), data.data(), kCount, kInt, Op::sum,
                                      {.stream = stream.handle()});
                      });
                    };
                    const GpuGraph graph = capture(comm);
                    graph.launch(stream);
                    stream.synchronize();
                    if (comm.rank() == 2) return;
                    graph.launch(stream);
                    stream.synchronize();
                    Communicator rest = comm.shrink();
                    const GpuGraph again = capture(rest);
                    data.fill(1);
                    graph.launch(stream);
                    stream.synchronize();
                    data.fill(1);
                    again.launch(stream);
                    stream.synchronize();
                    EXPECT_THAT(data.read(), Each(2));
                  }),
              Each(IsEmpty()));
}

TEST_P(Graphs, TwoExecutableGraphsOfOneGraphUnderWayAtOnceAreAnErrorAtOnce) {
  Config config = this->config();
  config.timeout = config.stall = std::chrono::hours(1);  // Neither has the queue look again.
  std::atomic<bool> over{false};
  EXPECT_THAT(run(2, config,
                  [&](Communicator& comm) {
                    const GpuStream one, two;
                    const GpuBuffer<int> data(kCount, 1);
                    const GpuGraph graph(one, [&] {
                      comm.all_reduce(data.data(), data.data(), kCount, kInt, Op::sum,
                                      {.stream = one.handle()});
                    });
                    void* exec = nullptr;
                    cu("cuGraphInstantiateWithFlags", &exec, graph.handle(), 0ULL);
                    if (comm.rank() == 0) {
                      graph.launch(one);
                      std::this_thread::sleep_for(milliseconds(300));  // The queue's thread, too.
                      cu("cuGraphLaunch", exec, two.handle());
                      for (int look = 0; look < 10'000 && !comm.failure(); ++look)
                        std::this_thread::sleep_for(milliseconds(1));
                      EXPECT_TRUE(comm.failure());
                      if (!comm.failure()) comm.abort("the overlap has not been noticed");
                      one.synchronize();
                      two.synchronize();
                      EXPECT_THAT(outcome_of([&] { comm.barrier(); }), StartsWith("usage: "));
                      over = true;
                    }
                    while (!over) std::this_thread::sleep_for(milliseconds(1));
                    cu("cuGraphExecDestroy", exec);
                  }),
              Each(IsEmpty()));
}

// The thread drives both ranks, so that a free in the second's call would wait for itself where the
// driver's frees wait for all that is on a GPU's streams: meson.build runs it in that way, too.
TEST(GraphsOfOneThread, ACallBehindALaunchedGraphFreesNothing) {
  struct Rank {
    explicit Rank(int ordinal) : context(ordinal), data(kCount, 1) {}
    const GpuContext context;
    const GpuStream stream;
    const GpuBuffer<int> data;
  };
  Config config = quick_config("local");
  config.timeout = std::chrono::seconds(5);
  const std::unique_ptr<Rank> ranks[2] = {std::make_unique<Rank>(0), std::make_unique<Rank>(1)};
  const auto capture = [&](Communicator& comm) {
    const Rank& rank = *ranks[comm.rank()];
    return GpuGraph(rank.stream, [&] {
      comm.all_reduce(rank.data.data(), rank.data.data(), kCount, kInt, Op::sum,
                      {.stream = rank.stream.handle()});
    });
  };
  std::vector<GpuGraph> outlive, graphs;
  for (Communicator& ended : Communicator::in_process(2, config)) outlive.push_back(capture(ended));
  std::vector<Communicator> comms = Communicator::in_process(2, config);
  for (Communicator& comm : comms) {
    graphs.push_back(capture(comm));
    graphs.back().launch(ranks[comm.rank()]->stream);
    outlive.clear();  // The process has their pinned memory, some time later.
    std::this_thread::sleep_for(milliseconds(20));
  }
  for (const auto& rank : ranks) {
    rank->stream.synchronize();
    EXPECT_THAT(rank->data.read(), Each(2));
  }
}

}  // namespace
}  // namespace tutti::test
