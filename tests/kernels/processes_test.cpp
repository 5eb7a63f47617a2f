// Tests collectives that kernels run between processes, whose rings lie in the memory of the
// receiving GPU, and what happens where the driver's handles are of no use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "tests/kernels/gpu_buffers.h"
#include "tests/kernels/lines.h"
#include "tests/runtime/processes.h"
#include "tests/runtime/threads.h"

namespace tutti::test {
namespace {

using testing::SizeIs;

constexpr const char* kOnGpu = "the receiving GPU's memory";
constexpr const char* kOnHost = "the host's memory, not a GPU's";

struct Job {
  const char* device = "rank";
  const char* transports = "auto";
  const char* peers = "";  // FAKE_CUDA_PEERS
};

/// Describes a rank of a job, which `body` uses while its GPU is the current one.
struct Member {
  Config config;
  Lines lines;
  int ordinal = 0;
};

Processes start(int size, const Job& job, const std::function<void(Member&)>& body) {
  const int port = unused_port();
  return Processes(size, [=](int rank) {
    set_environment(rank, size, port);
    setenv("FAKE_CUDA_PEERS", job.peers, 1);
    Member member;
    member.config = quick_config(job.transports);
    member.config.device = job.device;
    member.config.log_level = LogLevel::debug;
    member.config.log_sink = member.lines.sink();
    member.ordinal = job.device == std::string("rank") ? rank % gpu_count() : 0;
    const GpuContext context(member.ordinal);
    body(member);
    if (testing::Test::HasFailure()) throw std::runtime_error("an expectation failed, see above");
  });
}

std::vector<std::string> outcomes(Processes& ranks, int size) {
  std::vector<std::string> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(ranks.outcome(rank));
  return all;
}

/// Returns element i of a block of what a rank gives.
int value(int rank, int block, std::size_t i) {
  return static_cast<int>(i % 251) * (block + 1) + 1000 * rank;
}

void fill(const GpuBuffer<int>& buffer, int rank, int blocks) {
  const std::size_t count = buffer.size() / static_cast<std::size_t>(blocks);
  std::vector<int> values(buffer.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = value(rank, static_cast<int>(i / count), i % count);
  buffer.write(values);
}

void expect_each(const GpuBuffer<int>& buffer, const std::function<int(std::size_t)>& expected) {
  const std::vector<int> found = buffer.read();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) wrong += found[i] != expected(i) ? 1 : 0;
  EXPECT_EQ(wrong, 0u) << "of " << found.size();
}

/// Makes calls of every kind of exchange: between all, around, from one and to one.
void exchange(Communicator& comm, std::size_t count) {
  const int ranks = comm.size(), rank = comm.rank();
  const std::size_t whole = count * static_cast<std::size_t>(ranks);
  const auto sum_of = [&](int block, std::size_t i) {
    int sum = 0;
    for (int each = 0; each < ranks; ++each) sum += value(each, block, i);
    return sum;
  };
  const auto block_of = [count](std::size_t i) { return static_cast<int>(i / count); };
  const GpuBuffer<int> one(count), all(whole), out(whole);
  fill(one, rank, 1);
  comm.all_reduce(one.data(), one.data(), count, DataType::int32, Op::sum);
  expect_each(one, [&](std::size_t i) { return sum_of(0, i); });
  fill(one, rank, 1);
  comm.all_gather(one.data(), all.data(), count, DataType::int32);
  expect_each(all, [&](std::size_t i) { return value(block_of(i), 0, i % count); });
  fill(all, rank, ranks);
  comm.reduce_scatter(all.data(), one.data(), count, DataType::int32, Op::sum);
  expect_each(one, [&](std::size_t i) { return sum_of(rank, i); });
  comm.all_to_all(all.data(), out.data(), count, DataType::int32);
  expect_each(out, [&](std::size_t i) { return value(block_of(i), rank, i % count); });
  comm.broadcast(all.data(), whole, DataType::int32, ranks - 1);
  expect_each(all, [&](std::size_t i) { return value(ranks - 1, block_of(i), i % count); });
}

TEST(BetweenProcesses, MessagesGoThroughTheMemoryOfTheReceivingGpu) {
  for (const char* device : {"rank", "0"}) {
    Processes ranks = start(3, {.device = device}, [](Member& member) {
      Communicator comm = Communicator::from_env(member.config);
      for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{100'000}})
        exchange(comm, count);
      EXPECT_THAT(member.lines.with(kOnGpu), Not(IsEmpty()));
      EXPECT_THAT(member.lines.with(kOnHost), IsEmpty());
    });
    EXPECT_THAT(outcomes(ranks, 3), Each(IsEmpty())) << device;
  }
}

struct Broken {
  const char* peers;
  const char* why;
};

TEST(BetweenProcesses, GpusThatDoNotReachEachOtherUseTheHostsMemoryAndSayWhy) {
  for (const Broken& broken :
       {Broken{"none", "cannot"}, Broken{"lost", "what the sender writes does not arrive"},
        Broken{"damaged", "other bytes arrive than the sender writes"}}) {
    Processes ranks = start(2, {.peers = broken.peers}, [&](Member& member) {
      Communicator comm = Communicator::from_env(member.config);
      exchange(comm, 50'000);
      EXPECT_THAT(member.lines.with(kOnGpu), IsEmpty());
      EXPECT_THAT(member.lines.with(kOnHost), Contains(HasSubstr(broken.why)));
    });
    EXPECT_THAT(outcomes(ranks, 2), Each(IsEmpty())) << broken.peers;
  }
}

TEST(BetweenProcesses, TransportsWithoutCudaIpcUseTheHostsMemoryWithoutAWord) {
  Processes ranks = start(2, {.transports = "shm"}, [](Member& member) {
    Communicator comm = Communicator::from_env(member.config);
    exchange(comm, 1000);
    EXPECT_THAT(member.lines.with(kOnGpu), IsEmpty());
    EXPECT_THAT(member.lines.with(kOnHost), IsEmpty());
  });
  EXPECT_THAT(outcomes(ranks, 2), Each(IsEmpty()));
}

TEST(BetweenProcesses, CommunicatorsThatEndInAnyOrderLeaveNoMemoryOfGpus) {
  Processes ranks = start(2, {}, [](Member& member) {
    member.config.ring_bytes = 1 << 20;  // A block of exported memory has room for one ring.
    Communicator world = Communicator::from_env(member.config);
    std::size_t after_some = 0;
    for (int turn = 0; turn < 12; ++turn) {
      auto comm = std::make_unique<Communicator>(world.dup());
      exchange(*comm, 1000);
      // One ends while the other has it still, in turns.
      if (turn % 2 == comm->rank()) comm.reset();
      world.barrier();
      comm.reset();
      if (turn == 5) after_some = allocations();
    }
    EXPECT_LE(allocations(), after_some);
  });
  EXPECT_THAT(outcomes(ranks, 2), Each(IsEmpty()));
}

/// Returns a communicator that is destroyed with the program's other globals.
std::unique_ptr<Communicator>& global() {
  static std::unique_ptr<Communicator> communicator;
  return communicator;
}

TEST(BetweenProcesses, ACommunicatorMayBeDestroyedWithTheProgramsGlobals) {
  Processes ranks = start(2, {}, [](Member& member) {
    global() = std::make_unique<Communicator>(Communicator::from_env(member.config));
    exchange(*global(), 1000);
    std::exit(0);
  });
  EXPECT_THAT(outcomes(ranks, 2), Each(IsEmpty()));
}

TEST(BetweenProcesses, AKilledPeerEndsTheKernelsThatWaitForIt) {
  Processes ranks = start(3, {}, [](Member& member) {
    Communicator comm = Communicator::from_env(member.config);
    exchange(comm, 1000);
    if (comm.rank() == 2) raise(SIGKILL);
    const GpuBuffer<int> buffer(100'000, 1);
    try {
      comm.all_reduce(buffer.data(), buffer.data(), 100'000, DataType::int32, Op::sum);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::peer_lost);
      EXPECT_THAT(error.what(), HasSubstr("rank 2"));
    }
    // The GPU is of use afterwards.
    Communicator rest = comm.shrink();
    EXPECT_EQ(rest.size(), 2);
    exchange(rest, 1000);
  });
  EXPECT_EQ(ranks.outcome(2), "ended by signal 9");
  EXPECT_THAT(ranks.outcome(0), IsEmpty());
  EXPECT_THAT(ranks.outcome(1), IsEmpty());
}

TEST(BetweenProcesses, AFrozenPeerEndsTheCallAtItsDeadline) {
  Processes ranks = start(2, {}, [](Member& member) {
    member.config.timeout = std::chrono::seconds(2);
    Communicator comm = Communicator::from_env(member.config);
    exchange(comm, 1000);
    if (comm.rank() == 1) raise(SIGSTOP);
    const GpuBuffer<int> buffer(1000, 1);
    try {
      comm.all_reduce(buffer.data(), buffer.data(), 1000, DataType::int32, Op::sum);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::timeout);
      EXPECT_THAT(error.what(), HasSubstr("rank 1"));
    }
  });
  EXPECT_THAT(ranks.outcome(0), IsEmpty());
}

/// Replays a graph of two calls, while rank 1 sends itself `signal` before its fourth launch. Every
/// other rank's stream goes on, and the error names that rank.
void replay_without_rank_1(Member& member, int signal, ErrorKind kind) {
  Communicator comm = Communicator::from_env(member.config);
  const GpuStream stream;
  const GpuBuffer<int> data(100'000, 1);
  const GpuGraph graph(stream, [&] {
    for (int call = 0; call < 2; ++call)
      comm.all_reduce(data.data(), data.data(), 100'000, DataType::int32, Op::max,
                      {.stream = stream.handle()});
  });
  for (int replay = 0; replay < 6; ++replay) {
    if (replay == 3 && comm.rank() == 1) {
      stream.synchronize();
      raise(signal);
    }
    graph.launch(stream);
  }
  stream.synchronize();
  EXPECT_THAT(member.lines.with("a call that a CUDA graph has started failed"), SizeIs(1));
  try {
    comm.barrier();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("rank 1"));
  }
}

TEST(BetweenProcesses, AKilledPeerEndsTheReplaysThatWaitForIt) {
  for (const char* device : {"rank", "none"}) {
    Processes ranks = start(3, {.device = device, .transports = "shm"}, [](Member& member) {
      replay_without_rank_1(member, SIGKILL, ErrorKind::peer_lost);
    });
    EXPECT_EQ(ranks.outcome(1), "ended by signal 9");
    EXPECT_THAT(ranks.outcome(0), IsEmpty());
    EXPECT_THAT(ranks.outcome(2), IsEmpty());
  }
}

TEST(BetweenProcesses, AFrozenPeerEndsAReplayAtItsDeadline) {
  for (const char* device : {"rank", "none"}) {
    Processes ranks = start(2, {.device = device, .transports = "shm"}, [](Member& member) {
      member.config.timeout = std::chrono::seconds(2);
      replay_without_rank_1(member, SIGSTOP, ErrorKind::timeout);
    });
    EXPECT_THAT(ranks.outcome(0), IsEmpty());
  }
}

}  // namespace
}  // namespace tutti::test
