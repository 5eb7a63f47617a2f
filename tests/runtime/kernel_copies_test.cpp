// Tests of calls in ordinary memory whose messages go through rings at first, and then are copied
// by the kernel for a while (transport/ring/kernel_copies.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "collectives/planning/select.h"
#include "processes.h"
#include "ranks.h"
#include "runtime/engine/execution.h"
#include "signs.h"
#include "threads.h"

namespace tutti::test {
namespace {

using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

// The calls until the first trial of the kernel has ended.
constexpr int kTried = KernelCopies::kBeforeKernel + KernelCopies::kTrial;

// Compiles the call for two ranks and binds it to their channels.
std::vector<std::unique_ptr<HostProgram>> programs_of(const CallSignature& call, Ranks& ranks,
                                                      std::size_t message_bytes) {
  std::vector<std::unique_ptr<HostProgram>> programs;
  for (const int rank : {0, 1}) {
    const Schedule schedule = algorithms()[call.algorithm].plan({call.what, rank, 2, call.root});
    programs.push_back(std::make_unique<HostProgram>(compile(schedule, call, message_bytes, true),
                                                     ranks.transport(rank)));
  }
  return programs;
}

TEST(KernelCopyCalls, PutNothingInTheirRingsWhileTheKernelIsTried) {
  constexpr std::size_t kMessage = 16 << 10, kBlock = 64 << 10;
  Ranks ranks(TransportKind::shm, 2, 1, kMessage);
  const std::uint32_t number = algorithm_index("all_pairs");
  const CallSignature call{Collective::all_gather, DataType::uint8, Op::sum, 0, kBlock, number};
  const auto programs = programs_of(call, ranks, kMessage);
  std::vector<std::byte> in[2], out[2];
  int by_kernel = 0;
  // The first call is not counted, since the reader's end of the ring is made meanwhile.
  for (int k = 0; k <= kTried; ++k) {
    const SendRing& ring =
        *ranks.transport(0).sender(1, programs[0]->program.sends[0].channel).ring();
    const std::uint64_t before = ring.payload_bytes();
    for (const int rank : {0, 1}) {
      in[rank].assign(kBlock, static_cast<std::byte>(2 * k + rank));
      out[rank].assign(2 * kBlock, std::byte{0xff});
    }
    ASSERT_TRUE(ranks.drive(1, [&](int rank, std::size_t, Execution& execution) {
      CallBuffers buffers{in[rank].data(), out[rank].data()};
      ZeroCopyBuffers zero_copy;
      zero_copy.input = {in[rank].data(), kBlock};
      zero_copy.output = {out[rank].data(), 2 * kBlock};
      zero_copy.kernel_copies = true;
      buffers.zero_copy = zero_copy;
      execution.start(*programs[static_cast<std::size_t>(rank)], buffers,
                      static_cast<std::uint32_t>(k), ResultStores::cached);
    }));
    for (const int rank : {0, 1})
      for (const std::size_t at : {std::size_t{0}, kBlock - 1, kBlock, 2 * kBlock - 1})
        ASSERT_EQ(out[rank][at], in[at / kBlock][0]) << "call " << k << ", rank " << rank;
    const bool kernel = programs[0]->sends[0].by_kernel();
    EXPECT_EQ(kernel, k > KernelCopies::kBeforeKernel) << k;
    EXPECT_EQ(ring.payload_bytes() - before, kernel ? 0 : kBlock) << k;
    by_kernel += kernel ? 1 : 0;
  }
  EXPECT_EQ(by_kernel, KernelCopies::kTrial);
}

// The rank has made its last look before it sleeps: nobody wakes it for this message once more.
TEST(KernelCopyCalls, TakeAMessageThatTheKernelCopiesInTheAttemptThatFindsIt) {
  constexpr std::size_t kMessage = 16 << 10, kBytes = 64 << 10;
  Ranks ranks(TransportKind::shm, 2, 1, kMessage);
  const std::uint32_t number = algorithm_index("one_shot");
  const CallSignature call{Collective::broadcast, DataType::uint8, Op::sum, 0, kBytes, number};
  std::vector<std::byte> data[2];
  Execution executions[2];
  const auto programs = programs_of(call, ranks, kMessage);
  // The first call is not counted, since the reader's end of the ring is made meanwhile.
  constexpr std::uint32_t kLast = KernelCopies::kBeforeKernel + 1;
  for (std::uint32_t k = 0; k <= kLast; ++k) {
    for (const int rank : {0, 1}) {
      data[rank].assign(kBytes, static_cast<std::byte>(rank == 0 ? k + 1 : 0xff));
      CallBuffers buffers{data[rank].data(), data[rank].data()};
      ZeroCopyBuffers zero_copy;
      zero_copy.input = zero_copy.output = {data[rank].data(), kBytes};
      zero_copy.kernel_copies = true;
      buffers.zero_copy = zero_copy;
      executions[rank].start(*programs[static_cast<std::size_t>(rank)], buffers, k,
                             ResultStores::cached);
    }
    bool done[2] = {executions[0].advance(), false};
    ranks.transport(1).progress();
    done[1] = executions[1].advance();
    if (k == kLast) {
      EXPECT_TRUE(programs[0]->sends[0].by_kernel());
      EXPECT_TRUE(done[1]) << "in the first attempt";
    }
    for (int turn = 0; turn < 10'000 && !(done[0] && done[1]); ++turn)
      for (const int rank : {0, 1}) {
        ranks.transport(rank).progress();
        done[rank] = done[rank] || executions[rank].advance();
      }
    ASSERT_TRUE(done[0] && done[1]) << k;
    ASSERT_EQ(data[1], data[0]) << k;
  }
}

// Writes what a rank sends in call `k`. Every element differs from its neighbours, and from those
// of the calls before.
void fill(std::vector<std::uint32_t>& data, int rank, int k) {
  std::iota(data.begin(), data.end(), static_cast<std::uint32_t>(k * 1'000'003 + rank * 500'000));
}
std::vector<std::uint32_t> of(std::size_t count, int rank, int k) {
  std::vector<std::uint32_t> data(count);
  fill(data, rank, k);
  return data;
}
void expect_same(const std::uint32_t* found, const std::vector<std::uint32_t>& wanted,
                 const char* what) {
  if (!std::equal(wanted.begin(), wanted.end(), found)) throw Error(ErrorKind::internal, what);
}

bool all_bytes(const std::vector<std::uint8_t>& data, std::uint8_t value) {
  return std::all_of(data.begin(), data.end(), [&](std::uint8_t byte) { return byte == value; });
}

class KernelCopiesOver : public testing::TestWithParam<const char*> {};

TEST_P(KernelCopiesOver, BringWhatIsSentInEachCallAlthoughItChangesFromCallToCall) {
  for (const std::size_t count : {4'097, 40'000, 80'000}) {  // of 4 bytes
    const auto outcomes = run_ranks(2, quick_config(GetParam()), [&](Communicator& comm) {
      const int rank = comm.rank(), peer = 1 - rank;
      const auto own = static_cast<std::size_t>(rank), other = static_cast<std::size_t>(peer);
      std::vector<std::uint32_t> in(2 * count), out(2 * count);
      Persistent gather = comm.all_gather_init(in.data(), out.data(), count, DataType::uint32);
      for (int k = 0; k < 2 * kTried; ++k) {
        const auto of_peer = of(2 * count, peer, k);
        fill(in, rank, k);
        comm.all_gather(in.data(), out.data(), count, DataType::uint32);
        expect_same(&out[other * count], of(count, peer, k), "all_gather");
        std::copy_n(in.begin(), count, &out[own * count]);
        comm.all_gather(&out[own * count], out.data(), count, DataType::uint32);  // in place
        expect_same(&out[other * count], of(count, peer, k), "all_gather in place");
        gather.run();
        expect_same(&out[other * count], of(count, peer, k), "persistent all_gather");
        comm.all_to_all(in.data(), out.data(), count, DataType::uint32);
        expect_same(&out[other * count], {&of_peer[own * count], &of_peer[(own + 1) * count]},
                    "all_to_all");
        fill(out, rank, k);
        comm.broadcast(out.data(), 2 * count, DataType::uint32, k % 2);
        expect_same(out.data(), of(2 * count, k % 2, k), "broadcast");
        comm.scatter(in.data(), out.data(), count, DataType::uint32, 1);
        const auto of_root = of(2 * count, 1, k);
        expect_same(out.data(), {&of_root[own * count], &of_root[(own + 1) * count]}, "scatter");
        comm.gather(in.data(), out.data(), count, DataType::uint32, 0);
        if (rank == 0) expect_same(&out[count], of(count, 1, k), "gather");
        Work arriving = comm.recv_async(out.data(), count, DataType::uint32, peer, 0);
        comm.send(in.data(), count, DataType::uint32, peer, 0);
        arriving.wait();
        expect_same(out.data(), of(count, peer, k), "send and receive");
      }
    });
    EXPECT_THAT(outcomes, Each(IsEmpty())) << count;
  }
}

// The first of two sends ends when its own message has been read, although the second one has
// begun.
TEST_P(KernelCopiesOver, OfTwoSendsAtOnceKeepTheirMemoryUntilItHasBeenRead) {
  for (const std::size_t bytes : {std::size_t{32} << 10, std::size_t{512} << 10}) {
    const auto outcomes = run_ranks(2, quick_config(GetParam()), [&](Communicator& comm) {
      std::vector<std::uint8_t> a(bytes), b(bytes);
      for (int k = 0; k < 400; ++k) {
        const auto first = static_cast<std::uint8_t>(k), second = static_cast<std::uint8_t>(k + 1);
        if (comm.rank() == 0) {
          a.assign(bytes, first);
          b.assign(bytes, second);
          Work one = comm.send_async(a.data(), bytes, DataType::uint8, 1, 0);
          Work two = comm.send_async(b.data(), bytes, DataType::uint8, 1, 0);
          one.wait();
          a.assign(bytes, 0xee);
          two.wait();
          b.assign(bytes, 0xdd);
        } else {
          Work one = comm.recv_async(a.data(), bytes, DataType::uint8, 0, 0);
          Work two = comm.recv_async(b.data(), bytes, DataType::uint8, 0, 0);
          one.wait();
          two.wait();
          if (!all_bytes(a, first) || !all_bytes(b, second))
            throw Error(ErrorKind::internal, "another message than was sent");
        }
      }
    });
    EXPECT_THAT(outcomes, Each(IsEmpty())) << bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, KernelCopiesOver, testing::Values("local", "shm"),
                         [](const auto& tested) { return std::string(tested.param); });

// The peer ends or stops while this rank waits for it to copy, or while this rank copies from it.
TEST(KernelCopyProcesses, EndWithAnErrorWhenAPeerIsKilledOrFrozen) {
  for (const int signal : {SIGKILL, SIGSTOP})
    for (const bool root : {false, true}) {
      const int port = unused_port();
      Sign failed;
      Processes ranks(2, [&](int rank) {
        Communicator comm = join_soon(rank, 2, port);
        std::vector<float> data(100'000);
        const std::string outcome = outcome_of([&] {
          for (int k = 0;; ++k) {
            const bool last = k == KernelCopies::kBeforeKernel + 4;
            if (last && rank == 1) raise(signal);
            const std::chrono::milliseconds limit{last && signal == SIGSTOP ? 300 : 0};
            comm.broadcast(data.data(), data.size(), DataType::f32, root ? 0 : 1,
                           {.timeout = limit});
          }
        });
        failed.give();
        throw std::runtime_error(outcome);
      });
      failed.wait();
      ranks.signal(1,
                   SIGKILL);  // Otherwise rank 0's store would wait some seconds for it to leave.
      EXPECT_THAT(
          ranks.outcome(0),
          AllOf(HasSubstr(signal == SIGKILL ? "peer_lost: " : "timeout: "), HasSubstr("rank 1")));
    }
}

// A process that gives up its rights after its start may then not be read any more.
TEST(KernelCopyProcesses, AreNotTriedOnceTheProcessMayNotBeRead) {
  const int port = unused_port();
  Processes ranks(2, [&](int rank) {
    // Root may read everything.
    if (getuid() == 0 &&
        (setresgid(12345, 12345, 12345) != 0 || setresuid(12345, 12345, 12345) != 0))
      throw std::runtime_error("the user cannot be changed");
    prctl(PR_SET_DUMPABLE, 1);
    Communicator comm = join_soon(rank, 2, port);
    constexpr std::size_t kCount = 16'384;
    std::vector<std::uint32_t> in(kCount), out(2 * kCount);
    for (int k = 0; k < 3 * kTried; ++k) {
      if (k == 5) prctl(PR_SET_DUMPABLE, 0);
      fill(in, rank, k);
      comm.all_gather(in.data(), out.data(), kCount, DataType::uint32);
      expect_same(&out[(rank == 0 ? 1 : 0) * kCount], of(kCount, 1 - rank, k), "all_gather");
    }
  });
  for (const int rank : {0, 1}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
}

// A rank whose call has failed uses its memory for something else. Nobody takes that for data.
TEST_P(KernelCopiesOver, OfACallThatHasFailedBringNothing) {
  Sign failed;
  const auto outcomes = run_ranks(2, quick_config(GetParam()), [&](Communicator& comm) {
    auto data = std::make_unique<std::vector<float>>(100'000, 1.0F);
    const auto broadcast = [&](std::chrono::milliseconds limit) {
      comm.broadcast(data->data(), data->size(), DataType::f32, 0, {.timeout = limit});
    };
    for (int k = 0; k < KernelCopies::kBeforeKernel + 4; ++k) broadcast({});
    if (comm.rank() == 1) failed.wait();
    std::string outcome = outcome_of([&] { broadcast(std::chrono::milliseconds(200)); });
    std::fill(data->begin(), data->end(), 7.0F);
    data.reset();
    if (comm.rank() == 0) failed.give();
    throw std::runtime_error(outcome);
  });
  EXPECT_THAT(outcomes[0], HasSubstr("timeout: "));
  EXPECT_THAT(outcomes[1],
              AnyOf(HasSubstr("timeout: "), HasSubstr("peer_failed: "), HasSubstr("rank 0")));
}

}  // namespace
}  // namespace tutti::test
