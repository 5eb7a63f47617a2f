// Collectives that kernels run, on the stand-in for the driver, beside the same ones of the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <tutti/tutti.hpp>

#include "tests/kernels/gpu_buffers.h"
#include "tests/runtime/threads.h"

namespace tutti::test {
namespace {

using std::chrono::milliseconds;

struct Setting {
  const char* transports;
  const char* device;  // "rank": each has a GPU; "0": all share one
};

class DeviceCollectives : public testing::TestWithParam<Setting> {
 protected:
  static Config config() {
    Config config = quick_config(GetParam().transports);
    config.device = GetParam().device;
    config.timeout = std::chrono::seconds(10);
    return config;
  }
};

// The default stream is tested where ranks share no GPU: on a stream that threads of one process
// share, the call of the first would hold up the others.
TEST_P(DeviceCollectives, OnTheDefaultStreamNeedNoOption) {
  if (GetParam().device[0] == '0') return;
  if (gpu_count() < 3) GTEST_SKIP() << "three ranks need three GPUs";
  EXPECT_THAT(run_ranks(3, config(),
                        [](Communicator& comm) {
                          const GpuContext context(comm.device());
                          const GpuBuffer<int> buffer(3000, comm.rank());
                          comm.all_reduce(buffer.data(), buffer.data(), 3000, DataType::int32,
                                          Op::sum);
                          EXPECT_THAT(buffer.read(), Each(3));
                        }),
              Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Settings, DeviceCollectives,
                         testing::Values(Setting{"auto", "rank"}, Setting{"auto", "0"},
                                         Setting{"cuda_ipc,shm", "rank"}, Setting{"shm", "0"}),
                         [](const auto& param) {
                           return std::string(param.param.transports) == "auto"
                                      ? (param.param.device[0] == '0' ? "LocalOneForAll"
                                                                      : "LocalEachItsOwn")
                                      : (param.param.device[0] == '0' ? "ShmOneForAll"
                                                                      : "ShmEachItsOwn");
                         });

/// One call: how many blocks of `count` elements its buffers hold, and how it is made.
struct Case {
  const char* name;
  int input, output;  // in blocks; 0 stands for one for each rank
  void (*run)(Communicator&, const void* in, void* out, std::size_t count, DataType, Op,
              const CallOptions&);
};

const std::vector<Case> kCases = {
    {"all_reduce", 1, 1,
     [](Communicator& c, const void* in, void* out, std::size_t n, DataType t, Op op,
        const CallOptions& o) { c.all_reduce(in, out, n, t, op, o); }},
    {"all_reduce in place", 1, 1,
     [](Communicator& c, const void*, void* out, std::size_t n, DataType t, Op op,
        const CallOptions& o) { c.all_reduce(out, out, n, t, op, o); }},
    {"reduce", 1, 1,
     [](Communicator& c, const void* in, void* out, std::size_t n, DataType t, Op op,
        const CallOptions& o) { c.reduce(in, out, n, t, op, c.size() - 1, o); }},
    {"broadcast", 1, 1,
     [](Communicator& c, const void*, void* out, std::size_t n, DataType t, Op,
        const CallOptions& o) { c.broadcast(out, n, t, c.size() - 1, o); }},
    {"all_gather", 1, 0,
     [](Communicator& c, const void* in, void* out, std::size_t n, DataType t, Op,
        const CallOptions& o) { c.all_gather(in, out, n, t, o); }},
    {"reduce_scatter", 0, 1,
     [](Communicator& c, const void* in, void* out, std::size_t n, DataType t, Op op,
        const CallOptions& o) { c.reduce_scatter(in, out, n, t, op, o); }},
    {"gather", 1, 0,
     [](Communicator& c, const void* in, void* out, std::size_t n, DataType t, Op,
        const CallOptions& o) { c.gather(in, out, n, t, 0, o); }},
    {"scatter", 0, 1,
     [](Communicator& c, const void* in, void* out, std::size_t n, DataType t, Op,
        const CallOptions& o) { c.scatter(in, out, n, t, 0, o); }},
    {"all_to_all", 0, 0,
     [](Communicator& c, const void* in, void* out, std::size_t n, DataType t, Op,
        const CallOptions& o) { c.all_to_all(in, out, n, t, o); }},
    {"barrier", 1, 1,
     [](Communicator& c, const void*, void*, std::size_t, DataType, Op, const CallOptions& o) {
       c.barrier(o);
     }},
};

using Bytes = std::vector<std::byte>;

std::size_t bytes_of(int blocks, int ranks, std::size_t count, DataType type) {
  return static_cast<std::size_t>(blocks == 0 ? ranks : blocks) * count * size_of(type);
}

// Random bits are values of every type, except that many are no numbers as floats, of which no two
// orders of reduction make the same bits; so floats are small whole numbers.
void fill(Bytes& bytes, DataType type, unsigned seed) {
  std::mt19937 random(seed);
  if (type == DataType::f32) {
    for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      const auto value = static_cast<float>(random() % 64) - 32;
      std::memcpy(bytes.data() + i, &value, 4);
    }
    return;
  }
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
}

/// The outputs of one call on every rank.
using Outputs = std::vector<Bytes>;

struct Trial {
  const Case& call;
  std::size_t count;
  DataType type;
  Op op;
};

Bytes input_of(const Trial& trial, const Communicator& comm, bool output) {
  Bytes bytes(bytes_of(output ? trial.call.output : trial.call.input, comm.size(), trial.count,
                       trial.type));
  fill(bytes, trial.type, static_cast<unsigned>(comm.rank() * 2 + (output ? 1 : 0)));
  return bytes;
}

Bytes run_on_host(const Trial& trial, Communicator& comm) {
  const Bytes in = input_of(trial, comm, false);
  Bytes out = input_of(trial, comm, true);
  trial.call.run(comm, in.data(), out.data(), trial.count, trial.type, trial.op, {});
  return out;
}

Bytes run_on_gpu(const Trial& trial, Communicator& comm, void* stream) {
  const Bytes in = input_of(trial, comm, false), out = input_of(trial, comm, true);
  const GpuBuffer<std::byte> gpu_in(in.size()), gpu_out(out.size());
  gpu_in.write(in);
  gpu_out.write(out);
  trial.call.run(comm, gpu_in.data(), gpu_out.data(), trial.count, trial.type, trial.op,
                 {.stream = stream});
  return gpu_out.read();
}

std::vector<Trial> trials() {
  std::vector<Trial> list;
  for (const Case& call : kCases)
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{1001}, std::size_t{70'000}})
      list.push_back({call, count, DataType::f32, Op::sum});
  list.push_back({kCases[0], 4097, DataType::int64, Op::max});
  list.push_back({kCases[0], 4099, DataType::uint8, Op::sum});
  return list;
}

TEST_P(DeviceCollectives, LeaveWhatTheHostLeaves) {
  for (const int ranks : {2, 3}) {
    std::vector<Outputs> expected(static_cast<std::size_t>(ranks)), found(expected.size());
    EXPECT_THAT(run_ranks(ranks, quick_config(GetParam().transports),
                          [&](Communicator& comm) {
                            for (const Trial& trial : trials())
                              expected[static_cast<std::size_t>(comm.rank())].push_back(
                                  run_on_host(trial, comm));
                          }),
                Each(IsEmpty()));
    EXPECT_THAT(run_ranks(ranks, config(),
                          [&](Communicator& comm) {
                            const GpuContext context(comm.device());
                            const GpuStream stream;
                            for (const Trial& trial : trials())
                              found[static_cast<std::size_t>(comm.rank())].push_back(
                                  run_on_gpu(trial, comm, stream.handle()));
                          }),
                Each(IsEmpty()));
    const std::vector<Trial> list = trials();
    for (std::size_t rank = 0; rank < expected.size(); ++rank)
      for (std::size_t i = 0; i < list.size() && i < found[rank].size(); ++i)
        EXPECT_TRUE(found[rank][i] == expected[rank][i])
            << list[i].call.name << " of " << list[i].count << ", rank " << rank << " of " << ranks;
  }
}

TEST_P(DeviceCollectives, TakeHostBuffersAndGpuBuffersInOneCall) {
  EXPECT_THAT(run_ranks(3, config(),
                        [](Communicator& comm) {
                          const GpuContext context(comm.device());
                          const GpuStream stream;
                          constexpr std::size_t kCount = 5000;
                          std::vector<int> host(kCount, comm.rank() + 1);
                          const GpuBuffer<int> gpu(kCount, comm.rank() + 1);
                          for (int turn = 0; turn < 3; ++turn) {
                            const bool on_host = (comm.rank() + turn) % 2 == 0;
                            std::fill(host.begin(), host.end(), comm.rank() + 1);
                            gpu.fill(comm.rank() + 1);
                            int* const buffer = on_host ? host.data() : gpu.data();
                            comm.all_reduce(buffer, buffer, kCount, DataType::int32, Op::sum,
                                            {.stream = on_host ? nullptr : stream.handle()});
                            EXPECT_THAT(on_host ? host : gpu.read(), Each(6));
                          }
                        }),
              Each(IsEmpty()));
}

TEST_P(DeviceCollectives, BlocksOfDifferentLengths) {
  const std::vector<std::size_t> counts{3000, 0, 5}, displacements{7, 2, 4000};
  EXPECT_THAT(run_ranks(3, config(),
                        [&](Communicator& comm) {
                          const GpuContext context(comm.device());
                          const GpuStream stream;
                          const GpuBuffer<int> input(3000, comm.rank() + 1), output(4100, -1);
                          comm.all_gatherv(input.data(), output.data(), counts, displacements,
                                           DataType::int32, {.stream = stream.handle()});
                          std::vector<int> expected(4100, -1);
                          std::fill_n(expected.begin() + 7, 3000, 1);
                          std::fill_n(expected.begin() + 4000, 5, 3);
                          EXPECT_TRUE(output.read() == expected);
                        }),
              Each(IsEmpty()));
}

TEST_P(DeviceCollectives, WaitForWhatIsBeforeThemOnTheirStreamAndHoldUpWhatIsBehind) {
  EXPECT_THAT(
      run_ranks(2, config(),
                [](Communicator& comm) {
                  const GpuContext context(comm.device());
                  const GpuStream stream;
                  constexpr std::size_t kCount = 10'000;
                  constexpr int kTurns = 5;
                  const GpuBuffer<int> buffer(kCount, 0);
                  std::vector<std::unique_ptr<PinnedBuffer<int>>> before, behind;
                  std::vector<Work> works;
                  for (int turn = 0; turn < kTurns; ++turn) {
                    before.push_back(std::make_unique<PinnedBuffer<int>>(kCount, turn + 1));
                    behind.push_back(std::make_unique<PinnedBuffer<int>>(kCount, -1));
                  }
                  for (std::size_t turn = 0; turn < kTurns; ++turn) {
                    stream.run([rank = comm.rank()] {
                      if (rank == 0) std::this_thread::sleep_for(milliseconds(10));
                    });
                    stream.copy(buffer.data(), before[turn]->view().data(), kCount * sizeof(int));
                    works.push_back(comm.all_reduce_async(buffer.data(), buffer.data(), kCount,
                                                          DataType::int32, Op::sum,
                                                          {.stream = stream.handle()}));
                    stream.copy(behind[turn]->view().data(), buffer.data(), kCount * sizeof(int));
                  }
                  stream.synchronize();
                  for (int turn = 0; turn < kTurns; ++turn)
                    EXPECT_THAT(behind[static_cast<std::size_t>(turn)]->view(), Each(2 * turn + 2));
                  for (Work& work : works) work.wait();
                }),
      Each(IsEmpty()));
}

TEST_P(DeviceCollectives, OnSeveralStreamsRunInTheOrderOfTheirCalls) {
  EXPECT_THAT(
      run_ranks(2, config(),
                [](Communicator& comm) {
                  const GpuContext context(comm.device());
                  const GpuStream first, second;
                  constexpr std::size_t kCount = 3000;
                  std::vector<std::unique_ptr<GpuBuffer<int>>> buffers;
                  std::vector<Work> works;
                  for (int call = 0; call < 12; ++call) {
                    buffers.push_back(std::make_unique<GpuBuffer<int>>(kCount, call));
                    int* const data = buffers.back()->data();
                    const GpuStream& stream = call % 3 == 0 ? first : second;
                    works.push_back(comm.all_reduce_async(data, data, kCount, DataType::int32,
                                                          Op::sum, {.stream = stream.handle()}));
                  }
                  first.synchronize();
                  second.synchronize();
                  for (int call = 0; call < 12; ++call)
                    EXPECT_THAT(buffers[static_cast<std::size_t>(call)]->read(), Each(2 * call));
                  for (Work& work : works) work.wait();
                }),
      Each(IsEmpty()));
}

TEST_P(DeviceCollectives, OfAGroupMayBeMadeInAnyOrder) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          const GpuContext context(comm.device());
                          const GpuStream stream;
                          Communicator other = comm.dup();
                          constexpr std::size_t kCount = 5000;
                          const GpuBuffer<int> a(kCount, 1), b(kCount, 10);
                          for (int turn = 0; turn < 3; ++turn) {
                            a.fill(1);
                            b.fill(10);
                            Group group;
                            const CallOptions options{.group = &group, .stream = stream.handle()};
                            const auto call = [&](Communicator& on, int* data) {
                              on.all_reduce(data, data, kCount, DataType::int32, Op::sum, options);
                            };
                            if (comm.rank() == 0) call(comm, a.data()), call(other, b.data());
                            if (comm.rank() == 1) call(other, b.data()), call(comm, a.data());
                            group.end();
                            EXPECT_THAT(a.read(), Each(2));
                            EXPECT_THAT(b.read(), Each(20));
                          }
                        }),
              Each(IsEmpty()));
}

TEST_P(DeviceCollectives, ReadHostBuffersWhenTheStreamComesToThem) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          const GpuContext context(comm.device());
                          const GpuStream stream;
                          std::vector<int> in(3000, 0), out(3000, -1);
                          std::atomic<bool> open{false};
                          std::atomic<int> wrong{0};
                          stream.run([&] {
                            while (!open) std::this_thread::yield();
                            std::fill(in.begin(), in.end(), 5);
                          });
                          Work work = comm.all_reduce_async(in.data(), out.data(), in.size(),
                                                            DataType::int32, Op::sum,
                                                            {.stream = stream.handle()});
                          stream.run([&] {
                            for (const int each : out) wrong += each != 10;
                          });
                          open = true;  // The call has returned, though its stream has not begun.
                          stream.synchronize();
                          work.wait();
                          EXPECT_EQ(wrong, 0);
                        }),
              Each(IsEmpty()));
}

TEST_P(DeviceCollectives, OfHostBuffersFollowEachOtherInTheOrderOfTheirCalls) {
  EXPECT_THAT(
      run_ranks(2, config(),
                [](Communicator& comm) {
                  std::vector<int> x(3000, 1), all(6000, -1);
                  Persistent twice =
                      comm.all_reduce_init(x.data(), x.data(), x.size(), DataType::int32, Op::sum);
                  Work first = twice.start();
                  Work second =
                      comm.all_reduce_async(x.data(), x.data(), x.size(), DataType::int32, Op::sum);
                  Work third =
                      comm.all_gather_async(x.data(), all.data(), x.size(), DataType::int32);
                  third.wait();
                  first.wait();
                  second.wait();
                  EXPECT_THAT(x, Each(4));
                  EXPECT_THAT(all, Each(4));
                }),
      Each(IsEmpty()));
}

// The all-reduce takes several launches, since the peer is late.
TEST_P(DeviceCollectives, OfAGroupDoNotTouchABufferBeforeASendHasReadIt) {
  EXPECT_THAT(
      run_ranks(2, config(),
                [](Communicator& comm) {
                  constexpr std::size_t kCount = 100'000;
                  const GpuContext context(comm.device());
                  const GpuStream stream;
                  const GpuBuffer<int> x(kCount, comm.rank() + 1), other(kCount, -1);
                  Group group;
                  const CallOptions options{.group = &group, .stream = stream.handle()};
                  comm.all_reduce(x.data(), x.data(), kCount, DataType::int32, Op::sum, options);
                  comm.send(x.data(), kCount, DataType::int32, 1 - comm.rank(), 0, options);
                  comm.recv(other.data(), kCount, DataType::int32, 1 - comm.rank(), 0, options);
                  if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(100));
                  group.end();
                  EXPECT_THAT(x.read(), Each(3));
                  EXPECT_THAT(other.read(), Each(2 - comm.rank()));
                }),
      Each(IsEmpty()));
}

TEST_P(DeviceCollectives, ARankThatIsLateFindsThePeersStillThere) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          const GpuContext context(comm.device());
                          const GpuStream stream;
                          const GpuBuffer<int> buffer(100'000, comm.rank());
                          if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(200));
                          comm.all_reduce(buffer.data(), buffer.data(), 100'000, DataType::int32,
                                          Op::sum, {.stream = stream.handle()});
                          EXPECT_THAT(buffer.read(), Each(1));
                        }),
              Each(IsEmpty()));
}

TEST_P(DeviceCollectives, ADeadlineNamesThePeerAndLetsTheStreamGoOn) {
  Config config = this->config();
  config.timeout = milliseconds(300);
  std::atomic<bool> over{false};
  const Outcomes outcomes = run_ranks(2, config, [&](Communicator& comm) {
    const GpuContext context(comm.device());
    if (comm.rank() == 1) {
      while (!over) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    const GpuStream stream;
    const GpuBuffer<int> buffer(10'000, 1);
    Work work = comm.all_reduce_async(buffer.data(), buffer.data(), 10'000, DataType::int32,
                                      Op::sum, {.stream = stream.handle()});
    std::atomic<bool> passed{false};
    stream.run([&] { passed = true; });
    const std::string outcome = outcome_of([&] { work.wait(); });
    stream.synchronize();
    over = true;
    EXPECT_TRUE(passed);
    EXPECT_THAT(outcome, AllOf(StartsWith("timeout: "), HasSubstr("rank 1")));
    EXPECT_THAT(outcome_of([&] { comm.barrier(); }), Not(IsEmpty()));
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST_P(DeviceCollectives, ADifferentCallIsAMismatchThatSaysWhatEachCalled) {
  const Outcomes outcomes = run_ranks(2, config(), [](Communicator& comm) {
    const GpuContext context(comm.device());
    const GpuStream stream;
    const GpuBuffer<int> buffer(64, 1);
    comm.all_reduce(buffer.data(), buffer.data(), comm.rank() == 0 ? 16u : 32u, DataType::int32,
                    Op::sum, {.stream = stream.handle()});
  });
  EXPECT_THAT(outcomes, Contains(AllOf(StartsWith("mismatch: "), HasSubstr("all_reduce(16 x int32"),
                                       HasSubstr("all_reduce(32 x int32"))));
}

TEST_P(DeviceCollectives, EndWithTheCommunicatorThatIsDestroyedBehindThem) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          const GpuContext context(comm.device());
                          const GpuStream stream;
                          const GpuBuffer<int> buffer(20'000, 1);
                          std::atomic<bool> go{false};
                          stream.run([&] {
                            while (!go) std::this_thread::yield();
                          });
                          {
                            Communicator dying = std::move(comm);
                            static_cast<void>(dying.all_reduce_async(
                                buffer.data(), buffer.data(), 20'000, DataType::int32, Op::sum,
                                {.stream = stream.handle()}));
                            go = true;
                          }
                          stream.synchronize();
                          EXPECT_THAT(buffer.read(), Each(2));
                        }),
              Each(IsEmpty()));
}

// Two ranks start over shared memory; the first has GPU 0, and the second what `device` says.
Outcomes start_with(const char* device) {
  const auto store = std::make_shared<MemoryStore>();
  Outcomes outcomes(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      Config config = quick_config("shm");
      config.device = rank == 0 ? "0" : device;
      outcomes[static_cast<std::size_t>(rank)] =
          outcome_of([&] { Communicator::create(store, rank, 2, config); });
    });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

TEST(DeviceSettings, ARankWithoutAGpuBesideOneThatHasOneIsAMismatch) {
  EXPECT_THAT(start_with("none"),
              Each(AllOf(StartsWith("mismatch: "), HasSubstr("rank 1 has TUTTI_DEVICE=none"))));
}

TEST(DeviceSettings, AGpuThatIsNotThereIsUnavailableOnEveryRank) {
  EXPECT_THAT(start_with("77"),
              Each(AllOf(StartsWith("unavailable: rank 1: TUTTI_DEVICE (Config::device) is 77"),
                         HasSubstr("no GPU 77"))));
}

}  // namespace
}  // namespace tutti::test
