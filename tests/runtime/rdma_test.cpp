// Tests whole communicators over RDMA, on queue pairs of a fake device: what is sent from
// Buffers and from memory that the program has registered is read where it lies.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "../transport/fake_verbs.h"
#include "runtime/communicator_impl.h"
#include "runtime/membership/setup.h"
#include "threads.h"
#include "transport/mesh/part.h"
#include "transport/rdma/rdma.h"

namespace tutti::test {
namespace {

/// The network between the ranks of one test.
std::unique_ptr<qp::fake::Network>& network() {
  static std::unique_ptr<qp::fake::Network> made;
  return made;
}

/// The number of ports that each rank has.
int& ports() {
  static int number = 1;
  return number;
}

/// The number of peers to which each rank makes queue pairs at the start.
int& at_once() {
  static int number = rdma::kPeersAtOnce;
  return number;
}

TransportEntry fake_rdma() {
  return {"rdma", [](const TransportContext&) { return std::optional<std::string>("here"); },
          [](std::string_view, std::string_view) {
            LinkCapabilities link;
            link.largest_message = mesh::kLargestMessage;
            link.may_fail = true;
            link.bytes_per_second = 1'250'000'000;
            return Reach{{}, link};
          },
          [](const TransportContext& context) {
            std::vector<std::shared_ptr<qp::Device>> devices;
            for (int port = 0; port < ports(); ++port) devices.push_back(network()->make_device());
            return rdma::make_over(context, std::move(devices), at_once());
          }};
}

class Rdma : public testing::Test {
 protected:
  void SetUp() override { network() = std::make_unique<qp::fake::Network>(3); }
  void TearDown() override {
    network().reset();
    ports() = 1;
    at_once() = rdma::kPeersAtOnce;
  }

  /// Starts `size` ranks over RDMA alone, and runs `body` on each.
  static Outcomes run(int size, const std::function<void(Communicator&)>& body) {
    auto store = std::make_shared<MemoryStore>();
    Outcomes outcomes(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        outcomes[static_cast<std::size_t>(rank)] = outcome_of([&] {
          Communicator comm = CommunicatorImpl::make(
              join_store(store, rank, size, quick_config(), {}, {fake_rdma()}));
          body(comm);
          comm.barrier();
        });
      });
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }
};

void expect(bool right, const char* what) {
  if (!right) throw Error(ErrorKind::internal, what);
}

// Whole numbers whose sums are exact in every order.
void fill(std::span<float> data, int rank) {
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 1000);
}

float sum_at(std::size_t i, int ranks) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank)
    sum += static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 1000);
  return sum;
}

// All collectives and messages on `memory`, which has room for 3 * count * ranks elements.
void work(Communicator& comm, std::span<float> memory, std::size_t count) {
  const int ranks = comm.size(), rank = comm.rank();
  const auto n = static_cast<std::size_t>(ranks);
  const std::span<float> in = memory.first(count * n), out = memory.subspan(count * n, count * n);
  for (const bool in_place : {false, true}) {
    fill(in, rank);
    const std::span<float> to = in_place ? in : out;
    comm.all_reduce(in.data(), to.data(), to.size(), DataType::f32, Op::sum);
    for (std::size_t i = 0; i < to.size(); ++i) expect(to[i] == sum_at(i, ranks), "all_reduce");
  }
  fill(in.first(count), rank);
  comm.all_gather(in.data(), out.data(), count, DataType::f32);
  std::vector<float> right(count);
  for (int from = 0; from < ranks; ++from) {
    fill(right, from);
    expect(std::ranges::equal(out.subspan(static_cast<std::size_t>(from) * count, count), right),
           "all_gather");
  }
  for (int root = 0; root < ranks; ++root) {
    fill(in, rank == root ? root : 99);
    comm.broadcast(in, root);
    for (std::size_t i = 0; i < in.size(); ++i)
      expect(in[i] == static_cast<float>((i * 7 + static_cast<std::size_t>(root) * 13) % 1000),
             "broadcast");
  }
  const std::span<float> mine = in.first(count);
  for (int step = 1; step < ranks; ++step) {
    fill(mine, rank);
    const int from = (rank + ranks - step) % ranks;
    const std::span<float> theirs = out.first(count);
    Work sent = comm.send_async(std::span<const float>(mine), (rank + step) % ranks);
    comm.recv(theirs, from);
    sent.wait();
    fill(right, from);
    expect(std::ranges::equal(theirs, right), "a message");
  }
}

constexpr std::size_t kCount = 60'011;  // 240 KB: several messages, the last of which is odd

TEST_F(Rdma, BuffersGiveTheSameBitsAsOtherMemoryAndAreReadInPlace) {
  for (const int ranks : {2, 3, 4}) {
    const auto plain = run(ranks, [&](Communicator& comm) {
      std::vector<float> memory(3 * kCount * static_cast<std::size_t>(ranks));
      work(comm, memory, kCount);
    });
    EXPECT_THAT(plain, Each(IsEmpty())) << ranks;
    EXPECT_EQ(network()->reads(), 0u);
    const std::uint64_t without = network()->sent_bytes();
    const auto with = run(ranks, [&](Communicator& comm) {
      const Buffer memory =
          Buffer::allocate(comm, 3 * kCount * static_cast<std::size_t>(ranks) * sizeof(float));
      work(comm, memory.as<float>(), kCount);
    });
    EXPECT_THAT(with, Each(IsEmpty())) << ranks;
    EXPECT_GT(network()->reads(), 20u) << ranks;
    EXPECT_LT(network()->sent_bytes() - without, without / 2) << ranks;
    EXPECT_EQ(network()->overruns(), 0u);
    TearDown();
    SetUp();
  }
}

TEST_F(Rdma, AMessageOf4MebibytesFromABufferTouchesNoSlot) {
  constexpr std::size_t kBytes = 4 << 20;
  std::uint64_t before = 0, after = 0;
  const auto outcomes = run(2, [&](Communicator& comm) {
    const Buffer memory = Buffer::allocate(comm, kBytes);
    const auto data = memory.as<std::uint32_t>();
    if (comm.rank() == 0)
      for (std::size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<std::uint32_t>(i * 2654435761u);
    comm.barrier();
    if (comm.rank() == 0) before = network()->sent_bytes();
    comm.barrier();
    if (comm.rank() == 0)
      comm.send(std::span<const std::uint32_t>(data), 1);
    else
      comm.recv(data, 0);
    comm.barrier();
    if (comm.rank() == 0) after = network()->sent_bytes();
    comm.barrier();
    for (std::size_t i = 0; i < data.size(); ++i)
      expect(data[i] == static_cast<std::uint32_t>(i * 2654435761u), "a wrong element");
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
  EXPECT_EQ(network()->read_bytes(), kBytes);
  EXPECT_LT(after - before, 64u << 10) << "frames alone";
}

TEST_F(Rdma, MemoryThatTheProgramHasRegisteredIsReadInPlace) {
  const auto outcomes = run(3, [&](Communicator& comm) {
    std::vector<float> memory(3 * kCount * 3);
    const auto held = RegisteredMemory::of(comm, memory.data(), memory.size() * sizeof(float));
    expect(held.used(), "not used");
    work(comm, memory, kCount);
    expect(!RegisteredMemory::of(comm, nullptr, 0).used(), "nothing is used");
    const auto refused = outcome_of([&] { RegisteredMemory::of(comm, nullptr, 1); });
    expect(refused.starts_with("usage"), "null is taken");
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
  EXPECT_GT(network()->reads(), 20u);
  EXPECT_EQ(network()->registered_now(), 0u);
}

TEST_F(Rdma, BuffersServeCommunicatorsThatAreSplitOffAndMayEndBeforeAndAfterThem) {
  const auto outcomes = run(4, [&](Communicator& comm) {
    auto halves = std::make_unique<Communicator>(*comm.split(comm.rank() % 2, comm.rank()));
    auto memory = std::make_unique<Buffer>(Buffer::allocate(comm, 3 * kCount * 2 * sizeof(float)));
    work(*halves, memory->as<float>(), kCount);
    memory.reset();
    memory = std::make_unique<Buffer>(Buffer::allocate(*halves, 3 * kCount * 2 * sizeof(float)));
    work(*halves, memory->as<float>(), kCount);
    halves.reset();
    comm.barrier();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
  EXPECT_GT(network()->reads(), 20u);
  EXPECT_EQ(network()->registered_now(), 0u);
}

TEST_F(Rdma, PathsThatFailAgainAndAgainChangeNoSumOfAnyCommunicator) {
  ports() = 2;
  std::atomic<bool> connected{false}, done{false};
  std::thread faults([&] {
    while (!done) {
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      if (connected) network()->fail_any();
    }
  });
  const auto outcomes = run(4, [&](Communicator& comm) {
    comm.barrier();
    connected = true;
    const Buffer memory = Buffer::allocate(comm, 3 * kCount * 4 * sizeof(float));
    for (int turn = 0; turn < 4; ++turn) {
      auto halves = comm.split(comm.rank() % 2, comm.rank());
      work(*halves, memory.as<float>().first(3 * kCount * 2), kCount);
      work(comm, memory.as<float>(), kCount);
    }
  });
  done = true;
  faults.join();
  EXPECT_THAT(outcomes, Each(IsEmpty()));
  EXPECT_EQ(network()->overruns(), 0u);
}

// A rank that sleeps in a call hears of the first message over the control connection, and works at
// the new queue pair.
TEST_F(Rdma, QueuePairsThatAreMadeWhenTheyAreNeededServeEveryCall) {
  for (const int peers : {0, 2}) {
    at_once() = peers;
    const auto outcomes = run(5, [&](Communicator& comm) {
      int first = comm.rank();
      std::this_thread::sleep_for(std::chrono::milliseconds(comm.rank() == 0 ? 100 : 0));
      comm.broadcast(std::span(&first, 1), 0);
      expect(first == 0, "the first broadcast");
      const Buffer memory = Buffer::allocate(comm, 3 * kCount * 5 * sizeof(float));
      for (int turn = 0; turn < 3; ++turn) work(comm, memory.as<float>(), kCount);
    });
    EXPECT_THAT(outcomes, Each(IsEmpty())) << peers;
    EXPECT_GT(network()->reads(), 20u) << peers;
    EXPECT_EQ(network()->registered_now(), 0u);
  }
}

TEST_F(Rdma, WhereTwoRanksDevicesDoNotReachEachOtherEveryRankSaysWhy) {
  network()->refuse();
  const auto outcomes = run(3, [](Communicator&) {});
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("unavailable: no transport joins rank 0 and rank 1"),
                                   HasSubstr("the fake network refuses"))));
}

TEST_F(Rdma, WhereTheDeviceLocksNoMoreMemoryBuffersAreSentThroughSlots) {
  network()->limit_registered(8 * (464u << 10));
  const auto outcomes = run(3, [&](Communicator& comm) {
    const Buffer memory = Buffer::allocate(comm, 3 * kCount * 3 * sizeof(float) + (4 << 20));
    work(comm, memory.as<float>(), kCount);
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
  EXPECT_EQ(network()->reads(), 0u);
}

TEST_F(Rdma, ARankThatFailsTakesItsBufferBackFromPeersThatWouldReadIt) {
  const auto outcomes = run(2, [&](Communicator& comm) {
    const Buffer memory = Buffer::allocate(comm, 4 << 20);
    std::fill(memory.as<int>().begin(), memory.as<int>().end(), comm.rank());
    if (comm.rank() == 0) {
      // The other rank never comes to this call.
      CallOptions options;
      options.timeout = std::chrono::milliseconds(300);
      try {
        comm.broadcast(memory.as<int>(), 0, options);
        expect(false, "it has ended well");
      } catch (const Error& error) {
        expect(error.kind() == ErrorKind::timeout, "another error");
      }
      std::fill(memory.as<int>().begin(), memory.as<int>().end(), 77);
      throw Error(ErrorKind::timeout, "as it should");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    comm.broadcast(memory.as<int>(), 0);
  });
  EXPECT_THAT(outcomes[0], StartsWith("timeout: as it should"));
  EXPECT_THAT(outcomes[1],
              AnyOf(StartsWith("peer_failed"), StartsWith("peer_lost"), StartsWith("timeout")));
}

}  // namespace
}  // namespace tutti::test
