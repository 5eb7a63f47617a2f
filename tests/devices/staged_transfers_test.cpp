// Sends and receives of GPU buffers, with the stand-in for the driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <tutti/tutti.hpp>

#include "tests/devices/staged.h"

namespace tutti {
namespace {

using namespace test;
using std::chrono::milliseconds;

class StagedTransfers : public Staged {};

INSTANTIATE_TEST_SUITE_P(Transports, StagedTransfers, testing::Values("local", "shm", "tcp"),
                         [](const auto& param) { return std::string(param.param); });

// Rank 0 fills and sends, rank 1 receives and reads, each by what it has on its stream.
TEST_P(StagedTransfers, SendsAndReceivesAreInTheOrderOfTheirStreams) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          constexpr int kTurns = 20;
                          const DeviceStream stream;
                          const DeviceBuffer<int> data(kCount, -1);
                          std::atomic<int> wrong{0};
                          std::vector<Work> works;
                          for (int turn = 0; turn < kTurns; ++turn) {
                            const CallOptions options{.stream = stream.handle()};
                            if (comm.rank() == 0) {
                              stream.launch([&data, turn] {
                                std::this_thread::sleep_for(std::chrono::microseconds(100));
                                for (int& each : data.view()) each = turn;
                              });
                              works.push_back(comm.send_async(data.data(), kCount, DataType::int32,
                                                              1, 7, options));
                            } else {
                              works.push_back(comm.recv_async(data.data(), kCount, DataType::int32,
                                                              0, 7, options));
                              stream.launch([&data, &wrong, turn] {
                                for (const int each : data.view()) wrong += each != turn;
                              });
                            }
                          }
                          for (Work& work : works) work.wait();
                          stream.synchronize();
                          EXPECT_EQ(wrong, 0);
                        }),
              Each(IsEmpty()));
}

// A send that waits for its stream holds up those behind it, so that none overtakes it.
TEST_P(StagedTransfers, SendsFromAGpuAndFromTheHostAreReceivedInTheOrderOfTheirCalls) {
  EXPECT_THAT(
      run_ranks(2, config(),
                [](Communicator& comm) {
                  constexpr int kTurns = 12;
                  if (comm.rank() == 1) {
                    for (int turn = 0; turn < kTurns; ++turn) {
                      std::vector<int> got(kCount, -1);
                      comm.recv(got.data(), kCount, DataType::int32, 0, 0);
                      EXPECT_THAT(got, Each(turn));
                    }
                    return;
                  }
                  const DeviceStream stream;
                  std::atomic<bool> open{false};
                  stream.launch([&] {
                    while (!open) std::this_thread::yield();
                  });
                  std::vector<std::unique_ptr<DeviceBuffer<int>>> gpu;
                  std::vector<std::vector<int>> host;
                  std::vector<Work> works;
                  for (int turn = 0; turn < kTurns; ++turn) {
                    gpu.push_back(std::make_unique<DeviceBuffer<int>>(kCount, turn));
                    host.emplace_back(kCount, turn);
                    works.push_back(
                        turn % 3 == 0
                            ? comm.send_async(gpu.back()->data(), kCount, DataType::int32, 1, 0,
                                              {.stream = stream.handle()})
                            : comm.send_async(host.back().data(), kCount, DataType::int32, 1, 0));
                  }
                  open = true;
                  for (Work& work : works) work.wait();
                }),
      Each(IsEmpty()));
}

TEST_P(StagedTransfers, AGroupExchangesBuffersOfGpusOnOneStream) {
  EXPECT_THAT(
      run_ranks(2, config(),
                [](Communicator& comm) {
                  const DeviceStream stream;
                  const DeviceBuffer<int> mine(kCount, comm.rank()), other(kCount, -1);
                  Group group;
                  Received received;
                  const CallOptions options{
                      .group = &group, .received = &received, .stream = stream.handle()};
                  comm.recv(other.data(), kCount, DataType::int32, 1 - comm.rank(), 3, options);
                  comm.send(mine.data(), kCount, DataType::int32, 1 - comm.rank(), 3, options);
                  group.end();
                  EXPECT_THAT(other.view(), Each(1 - comm.rank()));
                  EXPECT_EQ(received.count, kCount);
                }),
      Each(IsEmpty()));
}

TEST_P(StagedTransfers, AStreamMayOrderSendsAndReceivesOfTheHost) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          const DeviceStream stream;
                          std::vector<int> data(kCount, -1);
                          const CallOptions options{.stream = stream.handle()};
                          std::atomic<int> wrong{0};
                          if (comm.rank() == 0) {
                            stream.launch([&] { std::fill(data.begin(), data.end(), 5); });
                            Work work = comm.send_async(data.data(), kCount, DataType::int32, 1, 0,
                                                        options);
                            stream.launch([&] { std::fill(data.begin(), data.end(), 6); });
                            work.wait();
                          } else {
                            stream.launch([&] {
                              for (const int each : data) wrong += each != -1;
                            });
                            Work work = comm.recv_async(data.data(), kCount, DataType::int32, 0, 0,
                                                        options);
                            stream.launch([&] {
                              for (const int each : data) wrong += each != 5;
                            });
                            work.wait();
                          }
                          stream.synchronize();
                          EXPECT_EQ(wrong, 0);
                        }),
              Each(IsEmpty()));
}

TEST_P(StagedTransfers, AReceiveThatNobodyAnswersEndsByItsDeadlineAndLetsItsStreamGoOn) {
  std::atomic<bool> over{false};
  EXPECT_THAT(run_ranks(2, config(),
                        [&](Communicator& comm) {
                          if (comm.rank() == 1) {
                            while (!over) std::this_thread::sleep_for(milliseconds(1));
                            return;
                          }
                          const DeviceStream stream;
                          const DeviceBuffer<int> data(kCount, 0);
                          Work work = comm.recv_async(
                              data.data(), kCount, DataType::int32, 1, 0,
                              {.timeout = milliseconds(200), .stream = stream.handle()});
                          Work behind = comm.send_async(data.data(), kCount, DataType::int32, 1, 0,
                                                        {.stream = stream.handle()});
                          std::atomic<bool> passed{false};
                          stream.launch([&] { passed = true; });
                          EXPECT_THAT(outcome_of([&] { work.wait(); }),
                                      AllOf(StartsWith("timeout"), HasSubstr("rank 1")));
                          EXPECT_THAT(outcome_of([&] { behind.wait(); }), Not(IsEmpty()));
                          stream.synchronize();
                          EXPECT_TRUE(passed);
                          over = true;
                        }),
              Each(IsEmpty()));
}

}  // namespace
}  // namespace tutti
