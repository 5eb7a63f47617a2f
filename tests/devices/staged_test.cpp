// Collectives on GPU buffers, with the stand-in for the driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include <tutti/tutti.hpp>

#include "tests/devices/staged.h"
#include "tests/runtime/threads.h"

namespace tutti {
namespace {

using namespace test;
using std::chrono::milliseconds;

INSTANTIATE_TEST_SUITE_P(Transports, Staged, testing::Values("local", "shm", "tcp"),
                         [](const auto& param) { return std::string(param.param); });

void fill(std::span<float> buffer, int rank) {
  for (std::size_t i = 0; i < buffer.size(); ++i)
    buffer[i] = static_cast<float>(rank * 10000) + static_cast<float>(i);
}

struct Case {
  const char* name;
  std::size_t input, output;  // In blocks of kCount elements.
  void (*run)(Communicator&, const float* input, float* output, const CallOptions&);
};

constexpr DataType kFloat = DataType::f32;
const std::vector<Case> kCases = {
    {"all_reduce", 1, 1,
     [](Communicator& c, const float* in, float* out, const CallOptions& o) {
       c.all_reduce(in, out, kCount, kFloat, Op::sum, o);
     }},
    {"all_reduce in place", 1, 1,
     [](Communicator& c, const float*, float* out, const CallOptions& o) {
       c.all_reduce(out, out, kCount, kFloat, Op::max, o);
     }},
    {"reduce", 1, 1,
     [](Communicator& c, const float* in, float* out, const CallOptions& o) {
       c.reduce(in, out, kCount, kFloat, Op::sum, 1, o);
     }},
    {"broadcast", 1, 1,
     [](Communicator& c, const float*, float* out, const CallOptions& o) {
       c.broadcast(out, kCount, kFloat, 1, o);
     }},
    {"all_gather", 1, 3,
     [](Communicator& c, const float* in, float* out, const CallOptions& o) {
       c.all_gather(in, out, kCount, kFloat, o);
     }},
    {"all_gather in place", 1, 3,
     [](Communicator& c, const float*, float* out, const CallOptions& o) {
       c.all_gather(out + static_cast<std::size_t>(c.rank()) * kCount, out, kCount, kFloat, o);
     }},
    {"reduce_scatter", 3, 1,
     [](Communicator& c, const float* in, float* out, const CallOptions& o) {
       c.reduce_scatter(in, out, kCount, kFloat, Op::sum, o);
     }},
    {"gather", 1, 3,
     [](Communicator& c, const float* in, float* out, const CallOptions& o) {
       c.gather(in, out, kCount, kFloat, 2, o);
     }},
    {"scatter", 3, 1,
     [](Communicator& c, const float* in, float* out, const CallOptions& o) {
       c.scatter(in, out, kCount, kFloat, 2, o);
     }},
    {"all_to_all", 3, 3,
     [](Communicator& c, const float* in, float* out, const CallOptions& o) {
       c.all_to_all(in, out, kCount, kFloat, o);
     }},
    {"reduce_scatter in place", 3, 3,
     [](Communicator& c, const float*, float* out, const CallOptions& o) {
       c.reduce_scatter(out, out + static_cast<std::size_t>(c.rank()) * kCount, kCount, kFloat,
                        Op::sum, o);
     }},
    {"gather in place", 1, 3,
     [](Communicator& c, const float* in, float* out, const CallOptions& o) {
       c.gather(c.rank() == 2 ? out + 2 * kCount : in, out, kCount, kFloat, 2, o);
     }},
    {"scatter in place", 3, 1,
     [](Communicator& c, const float* in, float* out, const CallOptions& o) {
       c.scatter(in, c.rank() == 2 ? const_cast<float*>(in) + 2 * kCount : out, kCount, kFloat, 2,
                 o);
     }},
    {"all_to_all in place", 3, 3,
     [](Communicator& c, const float*, float* out, const CallOptions& o) {
       c.all_to_all(out, out, kCount, kFloat, o);
     }},
    {"barrier", 1, 1,
     [](Communicator& c, const float*, float*, const CallOptions& o) { c.barrier(o); }},
};

TEST_P(Staged, EveryCollectiveLeavesOnAGpuWhatItLeavesOnTheHost) {
  EXPECT_THAT(
      run_ranks(3, config(),
                [](Communicator& comm) {
                  const DeviceStream stream;
                  for (const Case& each : kCases) {
                    SCOPED_TRACE(each.name);
                    std::vector<float> input(each.input * kCount), output(each.output * kCount);
                    const DeviceBuffer<float> gpu_input(input.size()), gpu_output(output.size());
                    for (std::span<float> in : {std::span(input), gpu_input.view()})
                      fill(in, comm.rank());
                    for (std::span<float> out : {std::span(output), gpu_output.view()})
                      fill(out, comm.rank() + 3);
                    each.run(comm, input.data(), output.data(), {});
                    each.run(comm, gpu_input.data(), gpu_output.data(),
                             {.stream = stream.handle()});
                    EXPECT_THAT(gpu_input.view(), testing::ElementsAreArray(input));
                    EXPECT_THAT(gpu_output.view(), testing::ElementsAreArray(output));
                  }
                }),
      Each(IsEmpty()));
}

TEST_P(Staged, BlocksOfDifferentLengthsLeaveTheGapsBetweenThemAlone) {
  const std::vector<std::size_t> counts{3, 0, 5}, displacements{7, 2, 20};
  EXPECT_THAT(run_ranks(3, config(),
                        [&](Communicator& comm) {
                          const DeviceStream stream;
                          const DeviceBuffer<int> input(5, comm.rank() + 1), output(30, -1);
                          comm.all_gatherv(input.data(), output.data(), counts, displacements,
                                           DataType::int32, {.stream = stream.handle()});
                          std::vector<int> expected(30, -1);
                          std::fill_n(expected.begin() + 7, 3, 1);
                          std::fill_n(expected.begin() + 20, 5, 3);
                          EXPECT_THAT(output.view(), testing::ElementsAreArray(expected));
                          const DeviceBuffer<int> result(5, -1);
                          comm.reduce_scatterv(output.data(), result.data(), counts, displacements,
                                               DataType::int32, Op::sum,
                                               {.stream = stream.handle()});
                          const std::array<int, 3> sums{3, -1, 9};
                          EXPECT_EQ(result.view()[0], sums[static_cast<std::size_t>(comm.rank())]);
                        }),
              Each(IsEmpty()));
}

TEST_P(Staged, ACallWaitsForWhatIsBeforeItOnItsStreamAndHoldsUpWhatIsBehindIt) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          const DeviceStream stream;
                          const DeviceBuffer<float> data(kCount);
                          std::vector<float> seen(kCount);
                          std::atomic<bool> open{false};
                          stream.launch([&] {
                            while (!open) std::this_thread::yield();
                            std::ranges::fill(data.view(), 2.0f);
                          });
                          const Work work =
                              comm.all_reduce_async(data.data(), data.data(), kCount, kFloat,
                                                    Op::sum, {.stream = stream.handle()});
                          stream.launch([&] { std::ranges::copy(data.view(), seen.begin()); });
                          EXPECT_FALSE(work.done());
                          open = true;
                          stream.synchronize();
                          EXPECT_THAT(seen, Each(4.0f));
                        }),
              Each(IsEmpty()));
}

TEST_P(Staged, ManyCallsUnderWayOnTwoStreamsEndInTheOrderOfTheirCalls) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          const DeviceStream streams[2];
                          const DeviceBuffer<int> data[2] = {DeviceBuffer<int>(kCount, 1),
                                                             DeviceBuffer<int>(kCount, 1)};
                          std::vector<Work> works;
                          for (std::size_t i = 0; i < 20; ++i)
                            works.push_back(comm.all_reduce_async(
                                data[i % 2].data(), data[i % 2].data(), kCount, DataType::int32,
                                Op::sum, {.stream = streams[i % 2].handle()}));
                          for (Work& work : works) work.wait();
                          for (const auto& each : data) EXPECT_THAT(each.view(), Each(1 << 10));
                        }),
              Each(IsEmpty()));
}

TEST_P(Staged, RanksWithHostAndWithGpuBuffersMeetInOneCall) {
  EXPECT_THAT(run_ranks(3, config(),
                        [](Communicator& comm) {
                          const DeviceStream stream;
                          const DeviceBuffer<int> gpu(kCount, comm.rank());
                          std::vector<int> host(kCount, comm.rank());
                          const bool on_gpu = comm.rank() != 1;
                          // One rank has its input on the host, and its output on the GPU.
                          const int* input = comm.rank() == 2 ? host.data() : gpu.data();
                          int* output = on_gpu ? gpu.data() : host.data();
                          comm.all_reduce(on_gpu ? input : host.data(), output, kCount,
                                          DataType::int32, Op::sum,
                                          {.stream = on_gpu ? stream.handle() : nullptr});
                          EXPECT_THAT(on_gpu ? gpu.view() : std::span(host), Each(3));
                        }),
              Each(IsEmpty()));
}

TEST_P(Staged, AGroupOfCallsOnOneStreamEndsInWhateverOrderRanksMakeThem) {
  EXPECT_THAT(
      run_ranks(2, config(),
                [](Communicator& comm) {
                  Communicator other = comm.dup();
                  const DeviceStream stream;
                  const DeviceBuffer<int> a(kCount, 1), b(kCount, 2);
                  std::vector<int> host(kCount, 3);
                  Group group;
                  const CallOptions options{.group = &group, .stream = stream.handle()};
                  const auto on_comm = [&] {
                    comm.all_reduce(a.data(), a.data(), kCount, DataType::int32, Op::sum, options);
                  };
                  if (comm.rank() == 0) on_comm();
                  other.all_reduce(b.data(), b.data(), kCount, DataType::int32, Op::sum, options);
                  if (comm.rank() == 1) on_comm();
                  comm.all_reduce(host.data(), host.data(), kCount, DataType::int32, Op::sum,
                                  {.group = &group});
                  group.end();
                  EXPECT_THAT(a.view(), Each(2));
                  EXPECT_THAT(b.view(), Each(4));
                  EXPECT_THAT(host, Each(6));
                }),
      Each(IsEmpty()));
}

TEST_P(Staged, APersistentCallReusesItsPinnedMemory) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          const DeviceStream stream;
                          const DeviceBuffer<int> data(kCount, 1);
                          Persistent call = comm.all_reduce_init(data.data(), data.data(), kCount,
                                                                 DataType::int32, Op::max,
                                                                 {.stream = stream.handle()});
                          for (int i = 0; i < 50; ++i) call.run();
                          for (int i = 0; i < 50; ++i) call.start().wait();
                          comm.barrier();
                          EXPECT_EQ(pinned_blocks(), 2) << "one for each rank";
                          EXPECT_GE(comm.memory_bytes(), kCount * sizeof(int));
                          comm.barrier();
                          EXPECT_THAT(data.view(), Each(1));
                        }),
              Each(IsEmpty()));
  EXPECT_EQ(pinned_blocks(), 0);
}

TEST_P(Staged, AFailureLetsTheStreamGoOnAndEndsTheWork) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          const DeviceStream stream;
                          const DeviceBuffer<int> data(kCount, 1);
                          if (comm.rank() == 1) return comm.abort("enough");
                          const CallOptions options{.stream = stream.handle()};
                          const std::string outcome = outcome_of([&] {
                            for (int i = 0; i < 2; ++i)
                              comm.all_reduce_async(data.data(), data.data(), kCount,
                                                    DataType::int32, Op::sum, options)
                                  .wait();
                          });
                          EXPECT_THAT(outcome, AllOf(StartsWith("peer_lost"), HasSubstr("enough")));
                          stream.synchronize();
                        }),
              Each(IsEmpty()));
  EXPECT_EQ(pinned_blocks(), 0);
}

TEST_P(Staged, ACallThatFailsBeforeItsStreamReachesItEndsOnceTheStreamHas) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          const DeviceStream stream;
                          const DeviceBuffer<int> data(kCount, 1);
                          std::atomic<bool> open{false};
                          stream.launch([&] {
                            while (!open) std::this_thread::yield();
                          });
                          Work work = comm.all_reduce_async(data.data(), data.data(), kCount,
                                                            DataType::int32, Op::sum,
                                                            {.stream = stream.handle()});
                          comm.abort("enough");
                          EXPECT_THAT(outcome_of([&] { work.wait(milliseconds(50)); }),
                                      StartsWith("timeout"));
                          open = true;
                          EXPECT_THAT(outcome_of([&] { work.wait(); }), StartsWith("peer_lost"));
                        }),
              Each(IsEmpty()));
}

TEST_P(Staged, WithoutPinnedMemoryNothingHasHappenedAndTheCallCanBeRepeated) {
  EXPECT_THAT(
      run_ranks(2, config(),
                [](Communicator& comm) {
                  const DeviceStream stream;
                  const DeviceBuffer<int> gpu(kCount, 1);
                  std::vector<int> host(kCount, 1);
                  int* data = comm.rank() == 0 ? gpu.data() : host.data();
                  const auto call = [&] {
                    comm.all_reduce(data, data, kCount, DataType::int32, Op::sum,
                                    {.stream = comm.rank() == 0 ? stream.handle() : nullptr});
                  };
                  if (comm.rank() == 0) {
                    refuse_memory(2);  // The pool tries twice.
                    EXPECT_THAT(outcome_of(call), AllOf(StartsWith("unavailable: pinned memory"),
                                                        HasSubstr("an error of the stand-in")));
                  }
                  call();
                  EXPECT_THAT(comm.rank() == 0 ? gpu.view() : std::span(host), Each(2));
                }),
      Each(IsEmpty()));
}

TEST_P(Staged, ACallOnTheDefaultStreamNeedsNoOption) {
  std::vector<Communicator> alone = Communicator::in_process(1, config());
  const DeviceBuffer<int> input(kCount, 7), output(kCount, 1);
  alone[0].all_reduce(input.data(), output.data(), kCount, DataType::int32, Op::sum);
  EXPECT_THAT(output.view(), Each(7));
}

TEST_P(Staged, WhatTheDriverRefusesFailsTheCommunicatorAndLeavesNothingOnTheStream) {
  for (const char* function : {"cuMemcpyAsync", "cuLaunchHostFunc", "cuStreamWaitValue32"})
    for (int before = 0; before < (std::string(function) == "cuStreamWaitValue32" ? 1 : 2);
         ++before) {
      SCOPED_TRACE(std::string(function) + " " + std::to_string(before));
      EXPECT_THAT(run_ranks(2, config(),
                            [&](Communicator& comm) {
                              const DeviceStream stream;
                              const DeviceBuffer<int> gpu(kCount, 1);
                              std::vector<int> host(kCount, 1);
                              int* data = comm.rank() == 0 ? gpu.data() : host.data();
                              if (comm.rank() == 0) refuse_once(function, before);
                              const std::string outcome = outcome_of([&] {
                                for (int i = 0; i <= comm.rank(); ++i)
                                  comm.all_reduce(
                                      data, data, kCount, DataType::int32, Op::sum,
                                      {.stream = comm.rank() == 0 ? stream.handle() : nullptr});
                              });
                              if (comm.rank() == 0) {
                                EXPECT_THAT(outcome, HasSubstr("the CUDA driver refuses"));
                              } else {
                                EXPECT_THAT(outcome, HasSubstr("rank 0"));
                              }
                              stream.synchronize();
                            }),
                  Each(IsEmpty()));
      EXPECT_EQ(pinned_blocks(), 0);
    }
}

TEST_P(Staged, ACallOnAStreamIsNotTakenForTheSameCallOfTheHostAgain) {
  EXPECT_THAT(
      run_ranks(2, config(),
                [](Communicator& comm) {
                  const DeviceStream stream;
                  std::vector<int> host(kCount, 1);
                  const auto call = [&](void* ordered_by) {
                    return comm.all_reduce_async(host.data(), host.data(), kCount, DataType::int32,
                                                 Op::sum, {.stream = ordered_by});
                  };
                  comm.all_reduce(host.data(), host.data(), kCount, DataType::int32, Op::sum);
                  std::atomic<bool> open{false};
                  stream.launch([&] {
                    while (!open) std::this_thread::yield();
                    std::ranges::fill(host, 5);
                  });
                  std::thread opens([&] {
                    std::this_thread::sleep_for(milliseconds(20));
                    open = true;
                  });
                  comm.all_reduce(host.data(), host.data(), kCount, DataType::int32, Op::sum,
                                  {.stream = stream.handle()});
                  opens.join();
                  EXPECT_THAT(host, Each(10));
                  call(stream.handle()).wait();
                  call(nullptr).wait();
                  EXPECT_THAT(host, Each(40));
                }),
      Each(IsEmpty()));
}

TEST_P(Staged, AGroupThatCannotBePreparedStartsNothingAndKeepsNothing) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          const DeviceStream stream, captured;
                          const DeviceBuffer<int> data(kCount, 1);
                          Group group;
                          const auto add = [&](const DeviceStream& on) {
                            comm.all_reduce(data.data(), data.data(), kCount, DataType::int32,
                                            Op::sum, {.group = &group, .stream = on.handle()});
                          };
                          captured.capture(true);
                          for (int i = 0; i < 2; ++i) {
                            add(stream);
                            add(captured);
                            EXPECT_THAT(outcome_of([&] {
                                          if (i == 0)
                                            group.end();
                                          else
                                            group.end_async();
                                        }),
                                        AllOf(StartsWith("usage"), HasSubstr("captured")));
                          }
                          add(stream);
                          group.end_async().wait();
                          EXPECT_THAT(data.view(), Each(2));
                        }),
              Each(IsEmpty()));
  EXPECT_EQ(pinned_blocks(), 0);
}

TEST_P(Staged, RefusesWhatItCannotDo) {
  EXPECT_THAT(
      run_ranks(
          2, config(),
          [](Communicator& comm) {
            const DeviceStream stream;
            const DeviceBuffer<int> data(kCount, 1);
            const auto call = [&] {
              comm.all_reduce(data.data(), data.data(), kCount, DataType::int32, Op::sum,
                              {.stream = stream.handle()});
            };
            stream.capture(true);
            EXPECT_THAT(outcome_of(call), AllOf(StartsWith("unavailable"), HasSubstr("captured")));
            stream.capture(false);
            std::string in_callback;
            std::atomic<bool> open{false};
            stream.launch([&] {
              while (!open) std::this_thread::yield();
            });
            Work first = comm.all_reduce_async(data.data(), data.data(), kCount, DataType::int32,
                                               Op::sum, {.stream = stream.handle()});
            first.then([&](const Error*) { in_callback = outcome_of(call); });
            open = true;
            first.wait();
            EXPECT_THAT(in_callback, StartsWith("usage: a callback makes a call on a GPU"));
            call();
            EXPECT_THAT(data.view(), Each(4));
          }),
      Each(IsEmpty()));
}

// Each buffer has a stream of its own, so that everything that touches it is in the order of the
// program, in whichever communicator, group and kind of memory.
void run_random_program(Communicator& comm, unsigned seed) {
  constexpr std::size_t kBuffers = 3;
  std::mt19937 same(seed);  // draws the same on all ranks
  std::mt19937 own(seed * 100 + static_cast<unsigned>(comm.rank()));
  Communicator other = comm.dup();
  const DeviceStream streams[kBuffers];
  const DeviceBuffer<std::uint32_t> gpu[kBuffers] = {DeviceBuffer<std::uint32_t>(kCount, 1),
                                                     DeviceBuffer<std::uint32_t>(kCount, 1),
                                                     DeviceBuffer<std::uint32_t>(kCount, 1)};
  std::vector<std::uint32_t> host[kBuffers];
  std::uint32_t expected[kBuffers] = {1, 1, 1};
  bool on_gpu[kBuffers];
  std::span<std::uint32_t> views[kBuffers];
  for (std::size_t k = 0; k < kBuffers; ++k) {
    host[k].assign(kCount, 1);
    on_gpu[k] = own() % 3 != 0;
    views[k] = on_gpu[k] ? gpu[k].view() : std::span(host[k]);
  }
  std::vector<Work> works;
  for (int step = 0; step < 30; ++step) {
    Group group;
    const bool grouped = same() % 2 == 0, waits = same() % 4 == 0;
    // The calls of a group see no results of each other, so they have a buffer each.
    const std::size_t first = same() % kBuffers;
    for (std::size_t calls = grouped ? 1 + same() % kBuffers : 1; calls > 0; --calls) {
      const std::size_t k = (first + calls) % kBuffers;
      Communicator& through = same() % 2 == 0 ? comm : other;
      std::uint32_t* const data = on_gpu[k] ? gpu[k].data() : host[k].data();
      const CallOptions options{.group = grouped ? &group : nullptr, .stream = streams[k].handle()};
      if (!grouped) {
        streams[k].launch([view = views[k]] {
          for (std::uint32_t& each : view) ++each;
        });
        ++expected[k];
      }
      expected[k] *= static_cast<std::uint32_t>(comm.size());
      if (grouped || waits)
        through.all_reduce(data, data, kCount, DataType::uint32, Op::sum, options);
      else
        works.push_back(
            through.all_reduce_async(data, data, kCount, DataType::uint32, Op::sum, options));
    }
    if (grouped && waits)
      group.end();
    else
      works.push_back(group.end_async());
  }
  if (same() % 2 == 0)
    for (Work& work : works) work.wait();
  for (const DeviceStream& stream : streams) stream.synchronize();
  for (std::size_t k = 0; k < kBuffers; ++k) EXPECT_THAT(views[k], Each(expected[k]));
}

TEST_P(Staged, RandomProgramsOfTwoCommunicatorsAndThreeStreamsGiveExactResults) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    EXPECT_THAT(run_ranks(2 + static_cast<int>(seed % 3), config(),
                          [seed](Communicator& comm) { run_random_program(comm, seed); }),
                Each(IsEmpty()));
    EXPECT_EQ(pinned_blocks(), 0);
  }
}

TEST_P(Staged, ADestroyedCommunicatorWaitsForItsStreams) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          const DeviceStream stream;
                          const DeviceBuffer<int> data(kCount, 1);
                          std::vector<Work> works;
                          {
                            Communicator other = comm.dup();
                            for (int i = 0; i < 5; ++i)
                              works.push_back(other.all_reduce_async(
                                  data.data(), data.data(), kCount, DataType::int32, Op::sum,
                                  {.stream = stream.handle()}));
                          }
                          for (const Work& work : works) EXPECT_TRUE(work.done());
                          EXPECT_THAT(data.view(), Each(32));
                        }),
              Each(IsEmpty()));
}

}  // namespace
}  // namespace tutti
