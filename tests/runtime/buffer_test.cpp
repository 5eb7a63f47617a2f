// Tests of buffers, which are memory that peers read and write without a copy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <optional>

#include "collectives/algorithms/algorithms.h"
#include "collectives/planning/select.h"
#include "processes.h"
#include "ranks.h"
#include "signs.h"
#include "threads.h"

namespace tutti::test {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// The number of elements of each rank's block, which takes many messages.
constexpr std::size_t kCount = 50'000;

void expect(bool condition, const char* what) {
  if (!condition) throw Error(ErrorKind::internal, what);
}

void fill(std::span<float> data, int rank) {
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<float>(i % 97) + static_cast<float>(rank);
}

// Returns the sum over all ranks of the values that fill() wrote.
float sum_at(std::size_t i, int ranks) {
  return static_cast<float>(ranks) * static_cast<float>(i % 97) +
         static_cast<float>(ranks * (ranks - 1) / 2);
}

void check_sum(std::span<const float> result, int ranks, std::size_t first = 0) {
  for (std::size_t i = 0; i < result.size(); ++i)
    expect(result[i] == sum_at(first + i, ranks), "a wrong sum");
}

struct Pair {
  Pair(Communicator& comm, std::size_t in, std::size_t out)
      : first(Buffer::allocate(comm, in * sizeof(float))),
        second(Buffer::allocate(comm, out * sizeof(float))) {}
  std::span<float> input() const { return first.as<float>(); }
  std::span<float> output() const { return second.as<float>(); }

  Buffer first, second;
};

class Buffers : public testing::TestWithParam<const char*> {
 protected:
  Config config() const { return quick_config(GetParam()); }
};

TEST_P(Buffers, ServeEveryCollectiveInAndOutOfPlace) {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto outcomes = run_ranks(ranks, config(), [&](Communicator& comm) {
      const auto n = static_cast<std::size_t>(ranks);
      const auto own = static_cast<std::size_t>(comm.rank()) * kCount;
      Pair all(comm, n * kCount, n * kCount);
      expect(all.first.shared(), "not shared");
      const float* input = all.input().data();
      float* output = all.output().data();
      for (int round = 0; round < 3; ++round) {
        fill(all.input(), comm.rank());
        comm.all_reduce(input, output, n * kCount, DataType::f32, Op::sum);
        check_sum(all.output(), ranks);
        comm.reduce_scatter(input, output + own, kCount, DataType::f32, Op::sum);
        check_sum(all.output().subspan(own, kCount), ranks, own);
        comm.all_gather(output + own, output, kCount, DataType::f32);  // in place
        check_sum(all.output(), ranks);
        comm.all_to_all(output, all.input().data(), kCount, DataType::f32);
        for (std::size_t i = 0; i < n * kCount; ++i)
          expect(input[i] == sum_at(own + i % kCount, ranks), "a wrong block");
        fill(all.output(), comm.rank());
        comm.all_reduce(all.output());
        check_sum(all.output(), ranks);
        fill(all.output(), comm.rank());
        comm.broadcast(all.output(), ranks - 1);
        expect(output[5] == static_cast<float>(5 + ranks - 1), "a wrong broadcast");
        fill(all.output(), comm.rank());
        comm.reduce(output, output, n * kCount, DataType::f32, Op::sum, 0);
        if (comm.rank() == 0) check_sum(all.output(), ranks);
      }
    });
    EXPECT_THAT(outcomes, Each(IsEmpty())) << ranks;
  }
}

TEST_P(Buffers, MixWithOrdinaryMemory) {
  const auto outcomes = run_ranks(3, config(), [&](Communicator& comm) {
    Pair shared(comm, kCount, kCount);
    std::vector<float> a(kCount), b(kCount);
    for (int mixture = 0; mixture < 64; ++mixture) {
      const int mine = mixture >> (2 * comm.rank());
      const std::span<float> input = (mine & 1) != 0 ? shared.input() : std::span(a);
      const std::span<float> output = (mine & 2) != 0 ? shared.output() : std::span(b);
      fill(input, comm.rank());
      comm.all_reduce(input.data(), output.data(), kCount, DataType::f32, Op::sum);
      check_sum(output, 3);
      expect(input[3] == static_cast<float>(3 + comm.rank()), "the input was written");
    }
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

// Buffers are sent by blocking and asynchronous calls, in both directions at once, and to ordinary
// memory.
TEST_P(Buffers, AreSentAndReceived) {
  const auto outcomes = run_ranks(2, config(), [&](Communicator& comm) {
    Pair shared(comm, kCount, kCount);
    std::vector<float> ordinary(kCount);
    const int peer = 1 - comm.rank();
    for (int k = 0; k < 6; ++k) {
      const std::span<float> into = k % 2 == 0 ? shared.output() : std::span(ordinary);
      fill(shared.input(), comm.rank() + k);
      Work received = comm.recv_async(into, peer, k);
      comm.send(shared.input(), peer, k);
      shared.input()[7] = -1;  // The rank owns the buffer again.
      received.wait();
      for (std::size_t i = 0; i < kCount; ++i)
        expect(into[i] == static_cast<float>(i % 97) + static_cast<float>(peer + k), "wrong data");
    }
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST_P(Buffers, ServePersistentAndAsynchronousCalls) {
  const auto outcomes = run_ranks(2, config(), [&](Communicator& comm) {
    Pair shared(comm, kCount, kCount);
    Persistent call = comm.all_reduce_init(shared.input().data(), shared.output().data(), kCount,
                                           DataType::f32, Op::sum);
    for (int k = 0; k < 5; ++k) {
      fill(shared.input(), comm.rank());
      if (k % 2 == 0)
        call.run();
      else
        call.start().wait();
      check_sum(shared.output(), 2);
    }
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

std::size_t mappings_of_memory_files() {
  std::ifstream maps("/proc/self/maps");
  std::size_t found = 0;
  for (std::string line; std::getline(maps, line);)
    if (line.find("memfd:tutti") != std::string::npos) ++found;
  return found;
}

TEST_P(Buffers, AreGivenBackByAllWhenTheyAreDestroyed) {
  std::atomic<std::size_t> before{0}, after{0};
  const auto outcomes = run_ranks(2, config(), [&](Communicator& comm) {
    const auto use = [&] {
      Pair shared(comm, kCount, kCount);
      fill(shared.input(), comm.rank());
      comm.all_reduce(shared.input().data(), shared.output().data(), kCount, DataType::f32,
                      Op::sum);
      check_sum(shared.output(), 2);
      comm.barrier();
    };
    for (int k = 0; k < 3; ++k) use();
    if (comm.rank() == 0) before = mappings_of_memory_files();
    for (int k = 0; k < 50; ++k) use();
    if (comm.rank() == 0) after = mappings_of_memory_files();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
  EXPECT_LE(after, before + 8) << "some may be on their way, some kept by who read them last";
}

TEST_P(Buffers, OutliveTheirCommunicatorAndServeOthers) {
  const auto outcomes = run_ranks(2, config(), [&](Communicator& comm) {
    std::optional<Buffer> buffer;
    {
      Communicator other = comm.dup();
      buffer = Buffer::allocate(other, kCount * sizeof(float));
      fill(buffer->as<float>(), comm.rank());
      other.all_reduce(buffer->as<float>());
    }
    check_sum(buffer->as<float>(), 2);
    fill(buffer->as<float>(), comm.rank());
    comm.all_reduce(buffer->as<float>());
    check_sum(buffer->as<float>(), 2);
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST_P(Buffers, OfNoBytesAndOfTooMany) {
  const auto outcomes = run_ranks(1, config(), [&](Communicator& comm) {
    const Buffer none = Buffer::allocate(comm, 0);
    expect(none.data() == nullptr && none.bytes() == 0 && !none.shared(), "not empty");
    const std::string outcome = outcome_of([&] { Buffer::allocate(comm, std::size_t{1} << 46); });
    EXPECT_THAT(outcome, StartsWith("unavailable: "));
    EXPECT_THAT(outcome, HasSubstr("70368744177664 bytes"));
    comm.barrier();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Transports, Buffers, testing::Values("local", "shm"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(BufferProcesses, OfAForkedChildAreTheParents) {
  const int port = unused_port();
  Processes ranks(2, [&](int rank) {
    Communicator comm = join_soon(rank, 2, port);
    std::optional<Buffer> buffer = Buffer::allocate(comm, kCount * sizeof(float));
    comm.barrier();
    if (const pid_t child = fork(); child == 0) {
      buffer.reset();
      _exit(0);
    } else {
      expect(waitpid(child, nullptr, 0) == child, "no child");
    }
    fill(buffer->as<float>(), rank);
    comm.all_reduce(buffer->as<float>());
    check_sum(buffer->as<float>(), 2);
    const Buffer moved = std::move(*buffer);
    expect(buffer->data() == nullptr && buffer->bytes() == 0, "not moved");
  });
  for (const int rank : {0, 1}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
}

// A peer is killed, or stops, in the middle of a zero-copy read.
TEST(BufferProcesses, EndWithAnErrorWhenAPeerIsKilledOrFrozen) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const int port = unused_port();
    Sign failed;
    Processes ranks(2, [&](int rank) {
      Communicator comm = join_soon(rank, 2, port);
      std::optional<Buffer> buffer = Buffer::allocate(comm, 64 << 20);
      const std::string outcome = outcome_of([&] {
        for (int k = 0;; ++k) {
          if (k == 3 && rank == 1) raise(signal);
          // Nobody answers that call if the peer is frozen.
          const bool in_vain = k == 3 && signal == SIGSTOP;
          const std::chrono::milliseconds limit{in_vain ? 300 : 0};  // 0 is the communicator's.
          comm.all_reduce(buffer->as<float>(), Op::sum, {.timeout = limit});
        }
      });
      buffer.reset();
      failed.give();
      throw std::runtime_error(outcome);
    });
    failed.wait();
    ranks.signal(1, SIGKILL);  // Otherwise rank 0's store would wait some seconds for it to leave.
    EXPECT_THAT(ranks.outcome(0), HasSubstr(signal == SIGKILL ? "peer_lost: " : "timeout: "));
  }
}

struct ZeroCopyCall {
  Collective what;
  const char* algorithm;
  int ranks;
  bool in_place;
};

class ZeroCopyCalls : public testing::TestWithParam<ZeroCopyCall> {};

// Each byte is read from a buffer of the rank that holds it and written to a buffer of the rank
// that receives it: no payload takes room in a ring.
TEST_P(ZeroCopyCalls, CopyNothingIntoMessages) {
  const auto [what, algorithm, size, in_place] = GetParam();
  constexpr std::size_t kBytes = 20'000;  // These are many messages of Ranks::kMessageBytes.
  Ranks ranks(TransportKind::zero_copy, size, 1);
  const std::uint32_t number = algorithm_index(algorithm);
  std::vector<std::unique_ptr<HostProgram>> programs;
  std::vector<std::vector<std::byte>> buffers;
  std::vector<CallBuffers> calls;
  const auto n = static_cast<std::size_t>(size);
  buffers.reserve(2 * n);
  for (int rank = 0; rank < size; ++rank) {
    const CallSignature call{what, DataType::f32, Op::sum, 0, kBytes / 4, number};
    const Schedule schedule = algorithms()[number].plan({what, rank, size, 0});
    programs.push_back(std::make_unique<HostProgram>(
        compile(schedule, call, Ranks::kMessageBytes, true), ranks.transport(rank)));
    ZeroCopyBuffers zero_copy;
    zero_copy.in_place = in_place;
    zero_copy.least_bytes = kInlineBytes + 1;
    const auto registered = [&](Memory& memory) {
      std::vector<std::byte>& buffer = buffers.emplace_back(n * kBytes);
      while (!memory) memory = ranks.maybe_register(rank, buffer);
      return buffer.data();
    };
    CallBuffers& buffer = calls.emplace_back();
    buffer.input = registered(zero_copy.input);
    buffer.output = in_place ? const_cast<std::byte*>(buffer.input) : registered(zero_copy.output);
    if (in_place) zero_copy.output = zero_copy.input;
    buffer.zero_copy = zero_copy;
  }
  ASSERT_TRUE(ranks.drive(1, [&](int rank, std::size_t, Execution& execution) {
    const auto r = static_cast<std::size_t>(rank);
    execution.start(*programs[r], calls[r], 0, ResultStores::cached);
  }));
  for (int rank = 0; rank < size; ++rank)
    for (const Program::Port& port : programs[static_cast<std::size_t>(rank)]->program.sends) {
      const SendRing* ring = ranks.transport(rank).sender(port.peer, port.channel).ring();
      EXPECT_GT(ring->posted(), 0u);
      EXPECT_EQ(ring->payload_bytes(), 0u) << "rank " << rank << " to " << port.peer;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, ZeroCopyCalls,
    testing::Values(ZeroCopyCall{Collective::all_reduce, "ring", 2, false},
                    ZeroCopyCall{Collective::all_reduce, "ring", 2, true},
                    ZeroCopyCall{Collective::all_reduce, "all_pairs", 4, false},
                    ZeroCopyCall{Collective::all_reduce, "all_pairs", 4, true},
                    ZeroCopyCall{Collective::all_gather, "all_pairs", 4, false},
                    ZeroCopyCall{Collective::reduce_scatter, "all_pairs", 4, false},
                    ZeroCopyCall{Collective::broadcast, "one_shot", 4, true},
                    ZeroCopyCall{Collective::all_to_all, "pairwise", 4, false}),
    [](const auto& tested) {
      const ZeroCopyCall& call = tested.param;
      return std::string(to_string(call.what)) + "_" + call.algorithm + std::to_string(call.ranks) +
             (call.in_place ? "_in_place" : "");
    });

}  // namespace
}  // namespace tutti::test
