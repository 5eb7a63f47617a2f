// Calls that are captured into CUDA graphs and replayed, by kernels and by the host's way, on the
// stand-in for the driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include <tutti/tutti.h>

#include "tests/kernels/graphs.h"

namespace tutti::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Settings, Graphs,
                         testing::Values(GraphSetting{"HostLocal", "local", "none"},
                                         GraphSetting{"HostShm", "shm", "none"},
                                         GraphSetting{"HostTcp", "tcp", "none"},
                                         GraphSetting{"KernelsLocal", "auto", "rank"},
                                         GraphSetting{"KernelsShmOneForAll", "shm", "0"}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(Graphs, AThousandReplaysGiveTheResultsOfTheirOwnData) {
  EXPECT_THAT(run(2, config(),
                  [](Communicator& comm) {
                    const GpuStream stream;
                    const PinnedBuffer<int> in(kCount), out(2 * kCount);
                    const GpuBuffer<int> data(kCount), gathered(2 * kCount);
                    const CallOptions options{.stream = stream.handle()};
                    const GpuGraph graph(stream, [&] {
                      stream.copy(data.data(), in.view().data(), kCount * 4);
                      comm.all_reduce(data.data(), data.data(), kCount, kInt, Op::sum, options);
                      comm.all_gather(data.data(), gathered.data(), kCount, kInt, options);
                      stream.copy(out.view().data(), gathered.data(), 2 * kCount * 4);
                    });
                    const std::size_t each = by_kernels() ? 2 : 4;  // nodes
                    EXPECT_EQ(graph.nodes(), 2 + 2 * each);
                    std::size_t wrong = 0;
                    for (int replay = 0; replay < 1000; ++replay) {
                      std::iota(in.view().begin(), in.view().end(), replay * (comm.rank() + 1));
                      graph.launch(stream);
                      stream.synchronize();
                      for (std::size_t i = 0; i < 2 * kCount; ++i)
                        wrong += out.view()[i] != 3 * replay + 2 * static_cast<int>(i % kCount);
                    }
                    EXPECT_EQ(wrong, 0u);
                  }),
              Each(IsEmpty()));
}

TEST_P(Graphs, LaunchesBehindEachOtherNeedNoHostInBetween) {
  EXPECT_THAT(run(3, config(),
                  [](Communicator& comm) {
                    const GpuStream stream;
                    const GpuBuffer<unsigned> data(kCount, 1);
                    const GpuGraph graph(stream, [&] {
                      comm.all_reduce(data.data(), data.data(), kCount, DataType::uint32, Op::sum,
                                      {.stream = stream.handle()});
                    });
                    unsigned expected = 1;
                    for (int replay = 0; replay < 100; ++replay) {
                      graph.launch(stream);
                      expected *= 3;
                    }
                    stream.synchronize();
                    EXPECT_THAT(data.read(), Each(expected));
                  }),
              Each(IsEmpty()));
}

struct Case {
  const char* name;
  void (*run)(Communicator&, const int* in, int* out, const CallOptions&);
};
const std::vector<std::size_t> kCounts{30, 0, 50}, kPlaces{0, 30, 40};
const std::vector<Case> kCases = {
    {"all_reduce", [](Communicator& c, const int* in, int* out,
                      const CallOptions& o) { c.all_reduce(in, out, kCount, kInt, Op::max, o); }},
    {"reduce", [](Communicator& c, const int* in, int* out,
                  const CallOptions& o) { c.reduce(in, out, kCount, kInt, Op::sum, 1, o); }},
    {"broadcast", [](Communicator& c, const int*, int* out,
                     const CallOptions& o) { c.broadcast(out, kCount, kInt, 2, o); }},
    {"all_gather", [](Communicator& c, const int* in, int* out,
                      const CallOptions& o) { c.all_gather(in, out, kCount, kInt, o); }},
    {"reduce_scatter",
     [](Communicator& c, const int* in, int* out, const CallOptions& o) {
       c.reduce_scatter(in, out, kCount, kInt, Op::sum, o);
     }},
    {"gather", [](Communicator& c, const int* in, int* out,
                  const CallOptions& o) { c.gather(in, out, kCount, kInt, 1, o); }},
    {"scatter", [](Communicator& c, const int* in, int* out,
                   const CallOptions& o) { c.scatter(in, out, kCount, kInt, 1, o); }},
    {"all_to_all", [](Communicator& c, const int* in, int* out,
                      const CallOptions& o) { c.all_to_all(in, out, kCount, kInt, o); }},
    {"all_gatherv",
     [](Communicator& c, const int* in, int* out, const CallOptions& o) {
       c.all_gatherv(in, out, kCounts, kPlaces, kInt, o);
     }},
    {"barrier", [](Communicator& c, const int*, int*, const CallOptions& o) { c.barrier(o); }},
    {"a send to the next rank, and a receive",
     [](Communicator& c, const int* in, int* out, const CallOptions& o) {
       Group group;
       CallOptions grouped = o;
       grouped.group = &group;
       c.recv(out, kCount, kInt, (c.rank() + 2) % 3, 7, grouped);
       c.send(in, kCount, kInt, (c.rank() + 1) % 3, 7, grouped);
       group.end();
     }},
};

TEST_P(Graphs, EveryCallLeavesInAReplayWhatItLeavesOutside) {
  EXPECT_THAT(run(3, config(),
                  [](Communicator& comm) {
                    const GpuStream stream;
                    const GpuBuffer<int> in(3 * kCount), out(3 * kCount), expected(3 * kCount);
                    const CallOptions options{.stream = stream.handle()};
                    std::vector<GpuGraph> graphs;
                    for (const Case& each : kCases)
                      graphs.emplace_back(stream,
                                          [&] { each.run(comm, in.data(), out.data(), options); });
                    for (int round = 0; round < 3; ++round) {
                      std::vector<int> values(3 * kCount);
                      std::iota(values.begin(), values.end(), 1000 * round + 10 * comm.rank());
                      for (std::size_t i = 0; i < kCases.size(); ++i) {
                        SCOPED_TRACE(kCases[i].name);
                        in.write(values);
                        out.fill(comm.rank());
                        expected.fill(comm.rank());
                        kCases[i].run(comm, in.data(), expected.data(), options);
                        graphs[i].launch(stream);
                        stream.synchronize();
                        EXPECT_EQ(out.read(), expected.read());
                      }
                    }
                  }),
              Each(IsEmpty()));
}

TEST_P(Graphs, HostBuffersAreReadAndWrittenAtEachReplay) {
  EXPECT_THAT(run(2, config(),
                  [](Communicator& comm) {
                    const GpuStream stream;
                    std::vector<int> data(kCount), result(kCount);
                    const GpuGraph graph(stream, [&] {
                      comm.all_reduce(data.data(), result.data(), kCount, kInt, Op::sum,
                                      {.stream = stream.handle()});
                    });
                    for (int replay = 0; replay < 20; ++replay) {
                      std::fill(data.begin(), data.end(), replay + comm.rank());
                      graph.launch(stream);
                      stream.synchronize();
                      EXPECT_THAT(result, Each(2 * replay + 1));
                    }
                  }),
              Each(IsEmpty()));
}

// The branches of the graph come to their calls in another order on each rank.
TEST_P(Graphs, CallsOnForkedStreamsStartInTheOrderOfTheirCaptureOnEveryRank) {
  EXPECT_THAT(run(2, config(),
                  [](Communicator& comm) {
                    const GpuStream first, second;
                    const GpuBuffer<int> a(kCount, 1), b(2 * kCount, 1);
                    const int slow = comm.rank();
                    const auto hold = [](void*) {
                      for (int look = 0; look < 2000; ++look) std::this_thread::yield();
                    };
                    const GpuGraph graph(first, [&] {
                      follow(second, first);
                      cu("cuLaunchHostFunc", (slow == 0 ? first : second).handle(),
                         static_cast<void (*)(void*)>(hold), static_cast<void*>(nullptr));
                      comm.all_reduce(a.data(), a.data(), kCount, kInt, Op::sum,
                                      {.stream = first.handle()});
                      comm.all_reduce(b.data(), b.data(), 2 * kCount, kInt, Op::sum,
                                      {.stream = second.handle()});
                      follow(first, second);
                    });
                    for (int replay = 0; replay < 10; ++replay) graph.launch(first);
                    first.synchronize();
                    EXPECT_THAT(a.read(), Each(1024));
                    EXPECT_THAT(b.read(), Each(1024));
                  }),
              Each(IsEmpty()));
}

TEST_P(Graphs, AGroupOverTwoCommunicatorsIsReplayedInWhateverOrderRanksMadeItsCalls) {
  EXPECT_THAT(run(2, config(),
                  [](Communicator& comm) {
                    Communicator other = comm.dup();
                    const GpuStream stream;
                    const GpuBuffer<int> a(kCount, 1), b(kCount, 2);
                    const GpuGraph graph(stream, [&] {
                      Group group;
                      const auto call = [&](Communicator& on, const GpuBuffer<int>& data) {
                        on.all_reduce(data.data(), data.data(), kCount, kInt, Op::sum,
                                      {.group = &group, .stream = stream.handle()});
                      };
                      if (comm.rank() == 0) call(comm, a);
                      call(other, b);
                      if (comm.rank() == 1) call(comm, a);
                      EXPECT_TRUE(group.end_async().done());
                    });
                    for (int replay = 0; replay < 10; ++replay) graph.launch(stream);
                    stream.synchronize();
                    EXPECT_THAT(a.read(), Each(1 << 10));
                    EXPECT_THAT(b.read(), Each(1 << 11));
                  }),
              Each(IsEmpty()));
}

TEST_P(Graphs, SendsAndReceivesNeedNoGroupWhereOneRankOnlySends) {
  EXPECT_THAT(run(2, config(),
                  [](Communicator& comm) {
                    const GpuStream stream;
                    const std::size_t count = 200'000;
                    const PinnedBuffer<int> pinned(count);
                    const GpuBuffer<int> data(count);
                    const GpuGraph graph(stream, [&] {
                      const CallOptions options{.stream = stream.handle()};
                      if (comm.rank() == 0) {
                        stream.copy(data.data(), pinned.view().data(), count * 4);
                        comm.send(data.data(), count, kInt, 1, 0, options);
                        comm.send(data.data(), 10, kInt, 1, 0, options);
                      } else {
                        comm.recv(data.data(), count, kInt, 0, 0, options);
                        comm.recv(data.data(), 10, kInt, 0, 0, options);
                        stream.copy(pinned.view().data(), data.data(), count * 4);
                      }
                    });
                    for (int replay = 1; replay <= 20; ++replay) {
                      if (comm.rank() == 0) std::ranges::fill(pinned.view(), replay);
                      graph.launch(stream);
                      stream.synchronize();
                      EXPECT_EQ(std::ranges::count(pinned.view(), replay),
                                static_cast<std::ptrdiff_t>(count));
                    }
                  }),
              Each(IsEmpty()));
}

TEST_P(Graphs, CallsOutsideAreOrderedWithReplaysByTheirStream) {
  EXPECT_THAT(run(2, config(),
                  [](Communicator& comm) {
                    const GpuStream stream;
                    const GpuBuffer<unsigned> data(kCount, 1), sent(kCount, 5);
                    const CallOptions options{.stream = stream.handle()};
                    const auto call = [&](Op op) {
                      comm.all_reduce(data.data(), data.data(), kCount, DataType::uint32, op,
                                      options);
                    };
                    const auto call_async = [&](Op op) {
                      return comm.all_reduce_async(data.data(), data.data(), kCount,
                                                   DataType::uint32, op, options);
                    };
                    call(Op::sum);
                    Work before = call_async(Op::sum);  // It may be under way during the capture.
                    const GpuGraph graph(stream, [&] {
                      call(Op::sum);
                      call(Op::max);
                      EXPECT_TRUE(call_async(Op::sum).done());
                    });
                    unsigned expected = 4;
                    for (int round = 0; round < 50; ++round) {
                      graph.launch(stream);
                      Work between = call_async(Op::sum);
                      graph.launch(stream);
                      expected *= 32;
                      if (round % 10 == 0) {
                        // Without a stream, the program waits before.
                        stream.synchronize();
                        std::vector<int> host(100, 1);
                        comm.all_reduce(host.data(), host.data(), 100, kInt, Op::sum);
                        EXPECT_THAT(host, Each(2));
                        comm.all_reduce_async(host.data(), host.data(), 100, kInt, Op::sum).wait();
                        EXPECT_THAT(host, Each(4));
                      }
                      if (expected == 0) {
                        stream.synchronize();
                        data.fill(1);
                        expected = 1;
                      }
                    }
                    before.wait();
                    stream.synchronize();
                    EXPECT_THAT(data.read(), Each(expected));
                    Communicator copy = comm.dup();  // while the graph is there
                    copy.barrier();
                  }),
              Each(IsEmpty()));
}

TEST_P(Graphs, ACaptureInAnyModeForbidsNothingThatACallOrTheBackgroundThreadDoes) {
  for (const GpuGraph::Mode mode : {GpuGraph::global, GpuGraph::of_thread, GpuGraph::relaxed}) {
    std::barrier<> together(2);  // No other thread of the test calls the driver during a capture.
    EXPECT_THAT(run(2, config(),
                    [&](Communicator& comm) {
                      const GpuStream stream;
                      const GpuBuffer<int> data(kCount, 1), large(500'000, 1);
                      std::vector<int> host(1);
                      together.arrive_and_wait();
                      // This call may still be under way while the other rank captures.
                      comm.all_reduce(host.data(), host.data(), 1, kInt, Op::sum);
                      const auto body = [&] {
                        for (int call = 0; call < 3; ++call)
                          comm.all_reduce(data.data(), data.data(), kCount, kInt, Op::sum,
                                          {.stream = stream.handle()});
                        comm.all_reduce(large.data(), large.data(), 500'000, kInt, Op::sum,
                                        {.stream = stream.handle()});
                      };
                      GpuGraph graph;
                      const std::string outcome =
                          outcome_of([&] { graph = GpuGraph(stream, body, mode); });
                      together.arrive_and_wait();
                      ASSERT_THAT(outcome, IsEmpty());
                      graph.launch(stream);
                      stream.synchronize();
                      EXPECT_THAT(data.read(), Each(8));
                      const std::vector<int> sums = large.read();
                      EXPECT_EQ(std::ranges::count(sums, 2), 500'000);
                    }),
                Each(IsEmpty()));
  }
}

TEST_P(Graphs, AGroupIsCapturedWholeOrNotAtAll) {
  EXPECT_THAT(run(2, config(),
                  [](Communicator& comm) {
                    const GpuStream captured, stream;
                    const GpuBuffer<int> data(kCount, 1);
                    const GpuGraph graph(captured, [&] {
                      Group group;
                      for (const GpuStream* on : {&captured, &stream})
                        comm.all_reduce(data.data(), data.data(), kCount, kInt, Op::sum,
                                        {.group = &group, .stream = on->handle()});
                      EXPECT_THAT(outcome_of([&] { group.end(); }),
                                  AllOf(StartsWith("usage: "), HasSubstr("group")));
                    });
                    EXPECT_EQ(graph.nodes(), 0u);
                    comm.all_reduce(data.data(), data.data(), kCount, kInt, Op::sum,
                                    {.stream = stream.handle()});
                    EXPECT_THAT(data.read(), Each(2));
                  }),
              Each(IsEmpty()));
}

TEST_P(Graphs, WhatEndedGraphsHeldIsUsedAgain) {
  EXPECT_THAT(run(2, config(),
                  [](Communicator& comm) {
                    const GpuStream stream;
                    const GpuBuffer<int> data(kCount, 1);
                    const auto capture = [&](bool valid) {
                      const auto body = [&] {
                        comm.all_reduce(data.data(), data.data(), kCount, kInt, Op::max,
                                        {.stream = stream.handle()});
                        if (!valid) stream.synchronize();  // It makes the capture invalid.
                      };
                      return outcome_of([&] { GpuGraph(stream, body).launch(stream); });
                    };
                    EXPECT_THAT(capture(true), IsEmpty());
                    stream.synchronize();
                    const std::size_t bytes = comm.memory_bytes();
                    for (int i = 0; i < 100; ++i) {
                      EXPECT_EQ(capture(i % 2 == 0).empty(), i % 2 == 0);
                      stream.synchronize();
                    }
                    // Objects of graphs are destroyed in threads of the driver, some time later.
                    EXPECT_LE(comm.memory_bytes(), 8 * bytes);
                    comm.all_reduce(data.data(), data.data(), kCount, kInt, Op::sum,
                                    {.stream = stream.handle()});
                    EXPECT_THAT(data.read(), Each(2));
                  }),
              Each(IsEmpty()));
}

TEST_P(Graphs, OneThreadCapturesWhileAnotherReplays) {
  EXPECT_THAT(
      run(2, config(),
          [&](Communicator& comm) {
            const GpuStream stream, replaying;
            const GpuBuffer<unsigned> data(kCount, 1);
            const auto capture = [&](const GpuStream& on) {
              return GpuGraph(on, [&] {
                comm.all_reduce(data.data(), data.data(), kCount, DataType::uint32, Op::sum,
                                {.stream = on.handle()});
              });
            };
            const GpuGraph graph = capture(replaying);
            std::thread replays(
                [&, ordinal = comm.device() >= 0 ? comm.device() : comm.rank() % gpu_count()] {
                  const GpuContext context(ordinal);
                  for (int replay = 0; replay < 200; ++replay) {
                    graph.launch(replaying);
                    if (replay % 7 == 0) replaying.synchronize();
                  }
                  replaying.synchronize();
                });
            std::vector<GpuGraph> graphs;
            for (int i = 0; i < 50; ++i) {
              graphs.push_back(capture(stream));
              if (i % 5 == 0) graphs.clear();
            }
            replays.join();
            data.fill(1);
            graphs.back().launch(stream);
            stream.synchronize();
            EXPECT_THAT(data.read(), Each(2u));
          }),
      Each(IsEmpty()));
}

// Sends are not ordered with collectives: the program may do both at once.
TEST_P(Graphs, BlockingCallsOnTheHostShareTheEngineWithReplays) {
  EXPECT_THAT(run(2, config(),
                  [&](Communicator& comm) {
                    const GpuStream stream;
                    const GpuBuffer<int> sent(kCount, comm.rank()), received(kCount);
                    const GpuGraph graph(stream, [&] {
                      Group group;
                      const CallOptions options{.group = &group, .stream = stream.handle()};
                      comm.send(sent.data(), kCount, kInt, 1 - comm.rank(), 0, options);
                      comm.recv(received.data(), kCount, kInt, 1 - comm.rank(), 0, options);
                      group.end();
                    });
                    for (int replay = 0; replay < 300; ++replay) graph.launch(stream);
                    std::vector<int> host(10, 1);
                    for (int call = 0; call < 1000; ++call) {
                      comm.all_reduce(host.data(), host.data(), 10, kInt, Op::max);
                      if (call % 10 != 0) continue;
                      Group group;
                      comm.send(host.data(), 10, kInt, 1 - comm.rank(), 1, {.group = &group});
                      std::vector<int> in(10);
                      comm.recv(in.data(), 10, kInt, 1 - comm.rank(), 1, {.group = &group});
                      group.end();
                      EXPECT_THAT(in, Each(1));
                    }
                    stream.synchronize();
                    EXPECT_THAT(received.read(), Each(1 - comm.rank()));
                  }),
              Each(IsEmpty()));
}

/// A program that each rank writes from one seed: launches of graphs, calls outside of them, and
/// graphs that come and go, all on one stream.
class Mix {
 public:
  Mix(Communicator& comm, unsigned seed) : comm_(comm), other_(comm.dup()), random_(seed) {}

  void run(int steps) {
    for (int step = 0; step < steps; ++step) take_step();
    stream_.synchronize();
    EXPECT_THAT(data_.read(), Each(expected_));
    EXPECT_THAT(gone_.read(), Each(expected_gone_));
  }

 private:
  unsigned draw(unsigned below) { return static_cast<unsigned>(random_() % below); }

  // Makes a call, on the stream, and returns what it makes of the value that all ranks have.
  unsigned call(unsigned which, unsigned value) {
    const auto size = static_cast<unsigned>(comm_.size());
    const int next = (comm_.rank() + 1) % comm_.size();
    const int last = (comm_.rank() + comm_.size() - 1) % comm_.size();
    Group group;
    CallOptions options{.stream = stream_.handle()};
    unsigned* const data = data_.data();
    switch (which) {
      case 0:
        comm_.all_reduce_async(data, data, kCount, DataType::uint32, Op::sum, options);
        return value * size;
      case 1:
        other_.all_reduce_async(data, data, kCount, DataType::uint32, Op::max, options);
        break;
      case 2:
        options.group = &group;
        comm_.all_reduce(data, data, kCount, DataType::uint32, Op::sum, options);
        other_.all_reduce(gone_.data(), gone_.data(), kCount, DataType::uint32, Op::min, options);
        group.end_async();
        return value * size;
      default:
        options.group = &group;
        comm_.send(data, kCount, DataType::uint32, next, 5, options);
        comm_.recv(gone_.data(), kCount, DataType::uint32, last, 5, options);
        group.end_async();
    }
    return value;
  }

  void take_step() {
    const unsigned kind = draw(10);
    if (kind < 4) {
      expected_ = call(kind, expected_);
      if (kind == 3) expected_gone_ = expected_;
    } else if (kind < 5 && graphs_.size() < 8) {
      Made made;
      for (unsigned& each : made.calls) each = draw(4);
      made.graph = GpuGraph(stream_, [&] {
        for (const unsigned each : made.calls) call(each, 0);
      });
      graphs_.push_back(std::move(made));
    } else if (kind < 6 && !graphs_.empty()) {
      graphs_.erase(graphs_.begin() + draw(static_cast<unsigned>(graphs_.size())));
    } else if (kind < 9 && !graphs_.empty()) {
      const Made& made = graphs_[draw(static_cast<unsigned>(graphs_.size()))];
      made.graph.launch(stream_);
      for (const unsigned each : made.calls) {
        if (each == 0 || each == 2) expected_ *= static_cast<unsigned>(comm_.size());
        if (each == 3) expected_gone_ = expected_;
      }
    } else if (kind == 9) {
      stream_.synchronize();
      data_.fill(1);
      expected_ = 1;
      comm_.barrier();
    }
  }

  struct Made {
    unsigned calls[4];
    GpuGraph graph;
  };

  Communicator& comm_;
  Communicator other_;
  std::mt19937 random_;
  const GpuStream stream_;
  const GpuBuffer<unsigned> data_{kCount, 1}, gone_{kCount, 0};
  unsigned expected_ = 1, expected_gone_ = 0;
  std::vector<Made> graphs_;
};

// With --gtest_random_seed=N there are other mixtures.
TEST_P(Graphs, AnyMixtureOfLaunchesAndCallsRunsInTheOrderOfItsStream) {
  const auto first = static_cast<unsigned>(GTEST_FLAG_GET(random_seed));
  for (unsigned seed = 2 * first; seed < 2 * first + 2; ++seed)
    EXPECT_THAT(run(3, config(), [&](Communicator& comm) { Mix(comm, seed).run(100); }),
                Each(IsEmpty()))
        << "seed " << seed;
}

TEST(GraphsInC, AHandleOfACapturedCallIsNullAndStandsForACallThatIsDone) {
  const GpuContext context(0);
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  tuttiComm_t comms[2];
  ASSERT_EQ(tuttiCommInitInProcess(comms, 2, &config), tuttiSuccess) << tuttiGetLastError(nullptr);
  {
    const GpuStream streams[2];
    const GpuBuffer<int> data[2] = {GpuBuffer<int>(kCount, 1), GpuBuffer<int>(kCount, 2)};
    std::vector<GpuGraph> graphs;
    for (int rank = 0; rank < 2; ++rank)
      graphs.emplace_back(streams[rank], [&] {
        tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
        options.stream = streams[rank].handle();
        tuttiWork_t work = nullptr;
        int done = 0;
        for (tuttiWork_t* const handle : {&work, static_cast<tuttiWork_t*>(nullptr)})
          EXPECT_EQ(tuttiAllReduce(data[rank].data(), data[rank].data(), kCount, tuttiInt32,
                                   tuttiSum, comms[rank], &options, handle),
                    tuttiSuccess)
              << tuttiGetLastError(nullptr);
        EXPECT_EQ(work, nullptr);
        EXPECT_EQ(tuttiWorkTest(work, &done), tuttiSuccess);
        EXPECT_EQ(done, 1);
        EXPECT_EQ(tuttiWorkFree(work), tuttiSuccess);
      });
    for (int rank = 0; rank < 2; ++rank) graphs[rank].launch(streams[rank]);
    for (const GpuStream& stream : streams) stream.synchronize();
    EXPECT_THAT(data[0].read(), Each(6));
    EXPECT_THAT(data[1].read(), Each(6));
  }
  for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

}  // namespace
}  // namespace tutti::test
