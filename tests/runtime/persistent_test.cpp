// Tests of persistent calls, which are planned once and started many times, and of the cost of a
// start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <numeric>

#include "allocations.h"
#include "locks.h"
#include "threads.h"

namespace tutti::test {
namespace {

using Counts = std::vector<std::size_t>;

constexpr DataType kType = DataType::int32;

class PersistentCalls : public testing::TestWithParam<const char*> {
 protected:
  // Runs `body` on two ranks and expects that it ends without an error.
  void on_two_ranks(const std::function<void(Communicator&)>& body) const {
    EXPECT_THAT(run_ranks(2, quick_config(GetParam()), body), Each(IsEmpty()));
  }
};

TEST_P(PersistentCalls, GiveTheSameAsTheCallEachTime) {
  on_two_ranks([](Communicator& comm) {
    for (const std::size_t count : {1u, 1000u, 300'000u}) {
      std::vector<float> in(count), out(count);
      Persistent sum = comm.all_reduce_init(in.data(), out.data(), count, DataType::f32, Op::sum);
      for (int round = 0; round < 5; ++round) {
        std::iota(in.begin(), in.end(), static_cast<float>(comm.rank() + round));
        if (round % 2 == 0)
          sum.run();
        else
          sum.start().wait();
        for (const std::size_t i : {std::size_t{0}, count / 2, count - 1})
          EXPECT_EQ(out[i], 2 * static_cast<float>(i) + 1 + 2 * static_cast<float>(round));
      }
    }
  });
}

TEST_P(PersistentCalls, MeetOtherCallsOfTheSameKind) {
  on_two_ranks([](Communicator& comm) {
    std::vector<float> data(100, 1);
    Persistent sum = comm.all_reduce_init(data.data(), data.data(), 100, DataType::f32, Op::sum);
    if (comm.rank() == 0)
      sum.run();
    else
      comm.all_reduce(std::span(data));
    EXPECT_THAT(data, AllAre(2.0F));
  });
}

TEST_P(PersistentCalls, MayBeStartedAgainBeforeTheyAreDone) {
  on_two_ranks([](Communicator& comm) {
    std::vector<std::int64_t> data(10'000, 1);
    std::vector<Work> works;
    {
      Persistent sum =
          comm.all_reduce_init(data.data(), data.data(), data.size(), DataType::int64, Op::sum);
      for (int round = 0; round < 10; ++round) works.push_back(sum.start());
    }
    // The destructor does not end operations that have been started.
    for (Work& work : works) work.wait();
    EXPECT_THAT(data, AllAre(1024));
  });
}

TEST_P(PersistentCalls, EveryCollectiveHasOne) {
  on_two_ranks([](Communicator& comm) {
    const std::vector<int> in{comm.rank() + 1, comm.rank() + 11};
    std::vector<int> out(4);
    const DataType type = DataType::int32;
    comm.reduce_init(in.data(), out.data(), 2, type, Op::sum, 0).run();
    EXPECT_THAT(out, comm.rank() == 0 ? ElementsAre(3, 23, 0, 0) : ElementsAre(0, 0, 0, 0));
    comm.all_gather_init(in.data(), out.data(), 2, type).run();
    EXPECT_THAT(out, ElementsAre(1, 11, 2, 12));
    comm.reduce_scatter_init(in.data(), out.data(), 1, type, Op::max).run();
    EXPECT_EQ(out[0], comm.rank() == 0 ? 2 : 12);
    out.assign(4, comm.rank());
    comm.broadcast_init(out.data(), 4, type, 1).run();
    EXPECT_THAT(out, AllAre(1));
    comm.barrier_init().run();
    out.assign(4, 0);
    comm.gather_init(in.data(), out.data(), 2, type, 1).run();
    EXPECT_THAT(out, comm.rank() == 1 ? ElementsAre(1, 11, 2, 12) : ElementsAre(0, 0, 0, 0));
    comm.scatter_init(in.data(), out.data(), 1, type, 0).run();
    EXPECT_EQ(out[0], comm.rank() == 0 ? 1 : 11);
    comm.all_to_all_init(in.data(), out.data(), 1, type).run();
    EXPECT_EQ(out[0], comm.rank() == 0 ? 1 : 11);
    EXPECT_EQ(out[1], comm.rank() == 0 ? 2 : 12);
  });
}

TEST_P(PersistentCalls, AWrongOneIsRefusedWhenItIsMade) {
  on_two_ranks([](Communicator& comm) {
    EXPECT_THAT(
        outcome_of([&] { comm.all_reduce_init(nullptr, nullptr, 1, DataType::f32, Op::sum); }),
        StartsWith("usage: "));
    std::vector<int> data(4);
    const Counts short_by_one{1};
    EXPECT_THAT(outcome_of([&] {
                  comm.all_gatherv_init(data.data(), data.data(), short_by_one, {}, kType);
                }),
                StartsWith("usage: all_gatherv: counts"));
    EXPECT_THAT(outcome_of([&] { comm.send_init(data.data(), 4, kType, 2, 0); }),
                StartsWith("usage: send: peer 2"));
    Group group;
    EXPECT_THAT(
        outcome_of([&] { comm.recv_init(data.data(), 4, kType, 0, 0, {.group = &group}); }),
        StartsWith("usage: an asynchronous call, or one that makes a persistent one, names"));
    comm.barrier();
  });
}

// --- blocks of different lengths ---

/// Every call on blocks of different lengths, between rank 0 with one element and rank 1 with two.
/// The lists of lengths and displacements are destroyed as soon as the calls are made.
struct VariableCalls {
  explicit VariableCalls(Communicator& communicator) : comm(communicator) {
    // The second element of three belongs to no block.
    const Counts counts{1, 2}, gaps{0, 2};
    const Counts mine(2, own());
    calls.push_back(comm.all_gatherv_init(in.data(), gathered.data(), counts, gaps, kType));
    calls.push_back(
        comm.reduce_scatterv_init(in.data(), reduced.data(), counts, {}, kType, Op::sum));
    calls.push_back(comm.gatherv_init(in.data(), own(), at_root.data(), counts, {}, kType, 0));
    calls.push_back(comm.scatterv_init(in.data(), counts, {}, scattered.data(), own(), kType, 1));
    calls.push_back(
        comm.all_to_allv_init(in.data(), counts, {}, exchanged.data(), mine, {}, kType));
  }

  std::size_t own() const { return comm.rank() == 0 ? 1 : 2; }

  void fill(int round) {
    for (std::size_t i = 0; i < in.size(); ++i)
      in[i] = 100 * round + 10 * comm.rank() + static_cast<int>(i);
    for (auto* out : {&gathered, &reduced, &at_root, &scattered, &exchanged}) out->assign(4, -1);
  }

  void check(int round) const {
    const int r = 100 * round;
    const bool first = comm.rank() == 0;
    EXPECT_THAT(gathered, ElementsAre(r, -1, r + 10, r + 11));
    EXPECT_THAT(reduced, first ? ElementsAre(2 * r + 10, -1, -1, -1)
                               : ElementsAre(2 * r + 12, 2 * r + 14, -1, -1));
    EXPECT_THAT(at_root, first ? ElementsAre(r, r + 10, r + 11, -1) : ElementsAre(-1, -1, -1, -1));
    EXPECT_THAT(scattered,
                first ? ElementsAre(r + 10, -1, -1, -1) : ElementsAre(r + 11, r + 12, -1, -1));
    EXPECT_THAT(exchanged,
                first ? ElementsAre(r, r + 10, -1, -1) : ElementsAre(r + 1, r + 2, r + 11, r + 12));
  }

  Communicator& comm;
  std::vector<int> in = std::vector<int>(3), gathered = std::vector<int>(4), reduced = gathered,
                   at_root = gathered, scattered = gathered, exchanged = gathered;
  std::vector<Persistent> calls;
};

TEST_P(PersistentCalls, OnBlocksOfDifferentLengthsKeepTheirsWhateverIsCalledBetween) {
  on_two_ranks([](Communicator& comm) {
    VariableCalls variable(comm);
    const Counts other{3, 3};
    std::vector<int> in(3, 7), out(6);
    for (int round = 0; round < 4; ++round) {
      variable.fill(round);
      for (Persistent& call : variable.calls) {
        if (round % 2 == 0)
          call.run();
        else
          call.start().wait();
        comm.all_gatherv(in.data(), out.data(), other, {}, kType);
        EXPECT_THAT(out, AllAre(7));
      }
      variable.check(round);
    }
  });
}

TEST_P(PersistentCalls, OnBlocksOfDifferentLengthsGoOnWhenTheyAreGone) {
  on_two_ranks([](Communicator& comm) {
    VariableCalls variable(comm);
    variable.fill(1);
    std::vector<Work> works;
    for (Persistent& call : variable.calls) works.push_back(call.start());
    variable.calls.clear();
    const std::vector<Counts> in_their_memory(64, Counts(4, 1'000'000));
    for (Work& work : works) work.wait();
    variable.check(1);
  });
}

// --- sends and receives ---

TEST_P(PersistentCalls, SendsAndReceivesMoveWhatIsInTheBufferAtTheStartAndSayWhatCame) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{100'000}})
    on_two_ranks([&](Communicator& comm) {
      const int peer = 1 - comm.rank();
      std::vector<int> out(count), in(count + 1);
      Received received;
      Persistent send = comm.send_init(out.data(), count, kType, peer, 5);
      Persistent recv =
          comm.recv_init(in.data(), count + 1, kType, kAnySource, kAnyTag, {.received = &received});
      for (int round = 0; round < 6; ++round) {
        out.assign(count, 10 * round + comm.rank());
        received = {};
        Work coming = recv.start();
        if (round % 2 == 0)
          send.run();
        else
          send.start().wait();
        coming.wait();
        EXPECT_EQ(in[count - 1], 10 * round + peer);
        EXPECT_EQ(received.source, peer);
        EXPECT_EQ(received.tag, 5);
        EXPECT_EQ(received.count, count);
      }
    });
}

TEST_P(PersistentCalls, ASendStartedTwiceIsReceivedTwiceByABlockingReceive) {
  on_two_ranks([](Communicator& comm) {
    std::vector<int> data(3, comm.rank());
    if (comm.rank() == 0) {
      Persistent send = comm.send_init(data.data(), 3, kType, 1, 0);
      Work first = send.start();
      Work second = send.start();
      first.wait();
      second.wait();
    } else {
      Received received;
      Persistent recv = comm.recv_init(data.data(), 3, kType, 0, 0, {.received = &received});
      for (int k = 0; k < 2; ++k) {
        data.assign(3, 9);
        recv.run();
        EXPECT_THAT(data, AllAre(0));
        EXPECT_EQ(received.count, 3u);
      }
    }
  });
}

// --- in groups ---

TEST_P(PersistentCalls, OfAllKindsRunInAGroupEachTimeTheyAreAddedToIt) {
  on_two_ranks([](Communicator& comm) {
    const int peer = 1 - comm.rank();
    VariableCalls variable(comm);
    std::vector<int> sum(1000), out(100'000), in(out.size());
    Received received;
    std::vector<Persistent> messages;
    messages.push_back(comm.send_init(out.data(), out.size(), kType, peer, 3));
    messages.push_back(
        comm.recv_init(in.data(), in.size(), kType, peer, 3, {.received = &received}));
    Persistent doubled = comm.all_reduce_init(sum.data(), sum.data(), 1000, kType, Op::sum);
    Group group;
    for (int round = 0; round < 4; ++round) {
      variable.fill(round);
      sum.assign(1000, 1);
      out.assign(out.size(), 10 * round + comm.rank());
      received = {};
      for (Persistent& call : variable.calls) call.add_to(group);
      for (Persistent& call : messages) call.add_to(group);
      doubled.add_to(group);
      doubled.add_to(group);
      EXPECT_EQ(sum[0], 1) << "it waits for the group's end";
      round % 2 == 0 ? group.end() : group.end_async().wait();
      variable.check(round);
      EXPECT_THAT(sum, AllAre(4));
      EXPECT_EQ(in.back(), 10 * round + peer);
      EXPECT_EQ(received.count, in.size());
    }
    doubled.add_to(group);
    variable.fill(9);
    for (Persistent& call : variable.calls) call.add_to(group);
    variable.calls.clear();
    messages.clear();
    doubled = comm.barrier_init();
    group.end();  // Calls that were added complete.
    variable.check(9);
    EXPECT_THAT(sum, AllAre(8));
  });
}

TEST_P(PersistentCalls, OfACommunicatorThatHasFailedAreRefusedByTheGroup) {
  const Outcomes outcomes = run_ranks(2, quick_config(GetParam()), [](Communicator& comm) {
    std::vector<int> data(4);
    Persistent sum = comm.all_reduce_init(data.data(), data.data(), 4, kType, Op::sum);
    EXPECT_NE(outcome_of([&] {
                comm.all_reduce(std::span(data).first(static_cast<std::size_t>(comm.rank()) + 1));
              }),
              "");
    Group group;
    sum.add_to(group);
  });
  EXPECT_THAT(outcomes, Each(StartsWith("mismatch: ")));
}

// --- what a start costs ---

TEST_P(PersistentCalls, AllocateNothingInTheSteadyState) {
  on_two_ranks([](Communicator& comm) {
    const int peer = 1 - comm.rank();
    VariableCalls variable(comm);
    std::vector<int> in(4), out(4), message(2000);
    std::vector<Persistent>& calls = variable.calls;
    calls.push_back(comm.gather_init(in.data(), out.data(), 2, kType, 0));
    calls.push_back(comm.scatter_init(in.data(), out.data(), 2, kType, 0));
    calls.push_back(comm.all_to_all_init(in.data(), out.data(), 2, kType));
    Persistent send = comm.send_init(in.data(), 4, kType, peer, 0);
    Persistent recv = comm.recv_init(out.data(), 4, kType, peer, 0);
    Group group;
    const auto round = [&] {
      for (Persistent& call : calls) call.run();
      for (Persistent& call : calls) call.start().wait();
      send.run();
      recv.run();
      Work sent = send.start();
      recv.start().wait();
      sent.wait();
      for (Persistent& call : calls) call.add_to(group);
      send.add_to(group);
      recv.add_to(group);
      group.end();
      // Without it, messages that are not received yet would have to be kept.
      comm.barrier();
    };
    EXPECT_EQ(steady_state_allocations(comm, round), 0u);
  });
}

// With one rank, no call that is run ever waits.
TEST_P(PersistentCalls, LockNothingWhenTheyAreRunOrStarted) {
  if (!counts_locks()) GTEST_SKIP() << "ThreadSanitizer must see the locks itself";
  EXPECT_THAT(
      run_ranks(1, quick_config(GetParam()),
                [](Communicator& comm) {
                  std::vector<int> in(4), out(4);
                  const Counts counts{4};
                  std::vector<Persistent> calls;
                  calls.push_back(comm.all_reduce_init(in.data(), out.data(), 4, kType, Op::sum));
                  calls.push_back(comm.all_gatherv_init(in.data(), out.data(), counts, {}, kType));
                  calls.push_back(comm.send_init(in.data(), 4, kType, 0, 0));
                  calls.push_back(comm.recv_init(out.data(), 4, kType, 0, 0));
                  for (Persistent& call : calls) call.start().wait();
                  const std::uint64_t before = locks_of_this_thread();
                  for (Persistent& call : calls) call.run();
                  EXPECT_EQ(locks_of_this_thread(), before);
                  for (Persistent& call : calls) {
                    const std::uint64_t at_start = locks_of_this_thread();
                    Work work = call.start();
                    EXPECT_EQ(locks_of_this_thread(), at_start);
                    work.wait();
                  }
                  const std::uint64_t at_last = locks_of_this_thread();
                  std::mutex mutex;
                  const std::lock_guard lock(mutex);
                  EXPECT_EQ(locks_of_this_thread(), at_last + 1);
                }),
      Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Over, PersistentCalls, testing::Values("local", "shm", "tcp"));

}  // namespace
}  // namespace tutti::test
