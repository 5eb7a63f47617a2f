// Tests of sends, receives and groups as a program uses them: blocking and asynchronous calls, and
// every wrong use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <numeric>

#include "allocations.h"
#include "processes.h"
#include "runtime/communicator_impl.h"
#include "signs.h"
#include "threads.h"
#include "watchdog.h"

namespace tutti::test {
namespace {

constexpr std::size_t kLarge = 300'000;

std::vector<float> numbers(std::size_t count, int first) {
  std::vector<float> data(count);
  std::iota(data.begin(), data.end(), static_cast<float>(first));
  return data;
}

class SendRecv : public testing::TestWithParam<const char*> {
 protected:
  Config config() const { return quick_config(GetParam()); }
  void run(int size, const std::function<void(Communicator&)>& body) const {
    EXPECT_THAT(run_ranks(size, config(), body), Each(IsEmpty()));
  }
};

TEST_P(SendRecv, EveryLengthArrivesAsItWasSentAndTheReceiverLearnsHowMuchItGot) {
  run(2, [](Communicator& comm) {
    for (const std::size_t count : {0u, 1u, 6u, 7u, 1000u, 1023u, 1025u, 300'000u}) {
      std::vector<float> data = numbers(count, 5), out(count + 3, -1);
      if (comm.rank() == 0) {
        comm.send(std::span(data), 1, 9);
      } else {
        const Received got = comm.recv(std::span(out), 0, 9);
        EXPECT_EQ(got.source, 0);
        EXPECT_EQ(got.tag, 9);
        EXPECT_EQ(got.count, count);
        EXPECT_TRUE(std::equal(data.begin(), data.end(), out.begin()));
        EXPECT_EQ(out[count], -1);
      }
    }
  });
}

TEST_P(SendRecv, MessagesAreReceivedByTagInAnyOrderAndFromAnyRank) {
  run(3, [](Communicator& comm) {
    std::vector<std::vector<float>> data;
    std::vector<Work> works;
    if (comm.rank() != 0) {
      for (const int tag : {0, 1, 2, 3}) {
        data.push_back(numbers(tag % 2 == 0 ? 3 : kLarge, 10 * comm.rank() + tag));
        works.push_back(comm.send_async(std::span(data.back()), 0, tag));
      }
    } else {
      for (const int tag : {3, 2, 1, 0}) {
        int sources = 0;
        for (int k = 0; k < 2; ++k) {
          std::vector<float> out(kLarge);
          const Received got = comm.recv(std::span(out), kAnySource, tag);
          EXPECT_EQ(got.tag, tag);
          EXPECT_EQ(out.front(), static_cast<float>(10 * got.source + tag));
          EXPECT_EQ(out[got.count - 1],
                    static_cast<float>(10 * got.source + tag) + static_cast<float>(got.count - 1));
          sources += got.source;
        }
        EXPECT_EQ(sources, 3);  // Each one was received once.
      }
    }
    for (Work& work : works) work.wait();
  });
}

TEST_P(SendRecv, CrossingLargeMessagesDoNotDeadlockBehindAnAsynchronousReceiveOrInAGroup) {
  run(3, [](Communicator& comm) {
    const int next = (comm.rank() + 1) % 3, previous = (comm.rank() + 2) % 3;
    std::vector<float> data = numbers(kLarge, comm.rank()), out(kLarge);
    for (int round = 0; round < 5; ++round) {
      Work work = comm.recv_async(std::span(out), previous);
      comm.send(std::span(data), next);
      work.wait();
      EXPECT_EQ(out[7], static_cast<float>(previous + 7));
      out.assign(kLarge, 0);
      Group group;
      comm.send(std::span(data), next, 1, {.group = &group});
      comm.recv(std::span(out), previous, 1, {.group = &group});
      group.end();
      EXPECT_EQ(out[kLarge - 1], static_cast<float>(previous) + static_cast<float>(kLarge - 1));
      out.assign(kLarge, 0);
    }
  });
}

TEST_P(SendRecv, MessagesThatTheKernelCopiesAreWholeAndAreTheSendersAgainAfterwards) {
  for (const int size : {2, 3})
    run(size, [](Communicator& comm) {
      const int next = (comm.rank() + 1) % comm.size();
      const int before = (comm.rank() + comm.size() - 1) % comm.size();
      for (int round = 0; round < 5; ++round) {
        std::vector<float> data = numbers(1'300'003, 100 * comm.rank() + round), out(data.size());
        Work work = comm.recv_async(std::span(out), before);
        comm.send(std::span(data), next);
        std::fill(data.begin(), data.end(), -1.f);
        work.wait();
        EXPECT_EQ(out, numbers(out.size(), 100 * before + round));
      }
    });
}

TEST_P(SendRecv, ARankSendsToItself) {
  run(2, [](Communicator& comm) {
    std::vector<float> small = numbers(2, 1), large = numbers(kLarge, 2), out(kLarge);
    comm.send(std::span(small), comm.rank(), 4);  // It is kept as an unexpected message.
    EXPECT_EQ(comm.recv(std::span(out), comm.rank(), kAnyTag).count, 2u);
    Received got;
    Work work = comm.recv_async(std::span(out), kAnySource, 5, {.received = &got});
    comm.send(std::span(large), comm.rank(), 5);
    work.wait();
    EXPECT_EQ(got.source, comm.rank());
    EXPECT_EQ(out, large);
    work = comm.send_async(std::span(small), comm.rank(), 6);
    Work longer = comm.send_async(std::span(large), comm.rank(), 7);
    comm.recv(std::span(out), comm.rank(), 7);
    longer.wait();
    comm.recv(std::span(out), comm.rank(), 6);
    work.wait();
  });
}

TEST_P(SendRecv, ManyMoreMessagesThanAnyBufferHoldsArriveInOrder) {
  // Each message takes a wake-up, which lasts a millisecond on busy cores.
  watchdog::allow(std::chrono::minutes(3));
  run(2, [](Communicator& comm) {
    constexpr int kMessages = 20'000;
    for (int k = 0; k < kMessages; ++k) {
      if (comm.rank() == 0) {
        comm.send(&k, 1, DataType::int32, 1, 0);
      } else {
        int got = -1;
        comm.recv(&got, 1, DataType::int32, 0, 0);
        ASSERT_EQ(got, k);
      }
    }
  });
}

TEST_P(SendRecv, ReceivesWaitBehindCollectivesAndCollectivesBehindReceives) {
  run(2, [](Communicator& comm) {
    std::vector<float> out(kLarge), data = numbers(kLarge, comm.rank()), sum(1000, 1);
    Work work = comm.recv_async(std::span(out), 1 - comm.rank());
    Work reduced = comm.all_reduce_async(std::span(sum));
    for (int k = 0; k < 10; ++k) comm.barrier();
    comm.send(std::span(data), 1 - comm.rank());
    work.wait();
    reduced.wait();
    EXPECT_EQ(out[1], static_cast<float>(2 - comm.rank()));
    EXPECT_THAT(sum, AllAre(2.0F));
  });
}

TEST_P(SendRecv, AnAsynchronousReceiveEndsWhileTheProgramComputes) {
  run(2, [](Communicator& comm) {
    std::vector<float> data = numbers(kLarge, 3), out(kLarge);
    if (comm.rank() == 0) return comm.send(std::span(data), 1);
    std::atomic<bool> reported{false};
    Work work = comm.recv_async(std::span(out), 0);
    work.then([&](const Error* error) { reported = error == nullptr; });
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!work.done() && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
    EXPECT_TRUE(work.done() && reported);  // No thread waited: the background thread completed it.
    EXPECT_EQ(out, data);
  });
}

TEST_P(SendRecv, AWrongArgumentIsRefusedBeforeAnythingHappens) {
  run(2, [](Communicator& comm) {
    float x = 1;
    const auto refused = [&](const char* words, auto&& call) {
      EXPECT_THAT(outcome_of(call), AllOf(StartsWith("usage: "), HasSubstr(words)));
    };
    const DataType f32 = DataType::f32;
    refused("send: peer 2 is not a rank; ranks are 0 to 1", [&] { comm.send(&x, 1, f32, 2, 0); });
    refused("peer -1 is not a rank", [&] { comm.send(&x, 1, f32, kAnySource, 0); });
    refused("or -1 for any", [&] { comm.recv(&x, 1, f32, -2, 0); });
    refused("tag -1 is out of range; tags are 0 to 2147483647",
            [&] { comm.send(&x, 1, f32, 0, kAnyTag); });
    refused("tag -7 is out of range", [&] { comm.recv_async(&x, 1, f32, 0, -7); });
    refused("recv: the buffer is null", [&] { comm.recv(nullptr, 1, f32, 0, 0); });
    refused("more than memory", [&] { comm.recv(&x, SIZE_MAX / 4, f32, 0, 0); });
    refused("no data type 99", [&] { comm.send(&x, 1, static_cast<DataType>(99), 0, 0); });
    refused("-3 ms is negative",
            [&] { comm.send(&x, 1, f32, 0, 0, {.timeout = std::chrono::milliseconds(-3)}); });
    Group group;
    refused("Group::end_async()", [&] { comm.send_async(&x, 1, f32, 0, 0, {.group = &group}); });
    refused("peer 9", [&] { comm.send(&x, 1, f32, 9, 0, {.group = &group}); });
    group.end();  // The group is empty.
    EXPECT_FALSE(comm.failure().has_value());
    comm.barrier();
  });
}

TEST_P(SendRecv, AnotherTypeIsAMismatchOnBothRanksThatSaysWhatEachCalled) {
  for (const std::size_t count : {std::size_t{10}, kLarge}) {
    const Outcomes outcomes = run_ranks(2, config(), [&](Communicator& comm) {
      std::vector<float> data(count);
      std::vector<std::int32_t> out(count);
      if (comm.rank() == 0) {
        comm.send(std::span(data), 1, 3);
        comm.recv(std::span(data), 1, 4);
      } else {
        comm.recv(std::span(out), kAnySource, 3);
      }
    });
    const std::string both = "recv(" + std::to_string(count) +
                             " x int32) from any rank with tag 3, but rank 0 called " + "send(" +
                             std::to_string(count) + " x f32) to rank 1 with tag 3";
    EXPECT_THAT(outcomes, Each(AllOf(StartsWith("mismatch: "), HasSubstr(both))));
  }
}

TEST_P(SendRecv, AMissingMessageIsATimeoutThatNamesPeerAndTagAndFailsTheCommunicator) {
  const Outcomes outcomes = run_ranks(2, config(), [](Communicator& comm) {
    std::vector<float> data(4);
    if (comm.rank() == 0) {
      comm.send(std::span(data), 1, 6);
      comm.recv(std::span(data), 1, 1);
    } else {
      comm.recv(std::span(data), 0, 5, {.timeout = std::chrono::milliseconds(300)});
    }
  });
  EXPECT_THAT(outcomes[1],
              AllOf(StartsWith("timeout: rank 1 of 2: recv(4 x f32) from rank 0 with tag 5 did not "
                               "end within 300 ms: rank 0 has sent no such message; rank 0 has "
                               "sent 4 x f32 with tag 6"),
                    HasSubstr("raise the timeout that the program gave the call")));
  EXPECT_THAT(outcomes[0], AllOf(StartsWith("timeout: "), HasSubstr("rank 1 has failed")));
}

TEST_P(SendRecv, AnAsynchronousCallIsHeldToItsDeadlineWhileNobodyWaits) {
  const Outcomes outcomes = run_ranks(2, config(), [](Communicator& comm) {
    std::vector<float> data(kLarge);
    if (comm.rank() == 1) return comm.barrier();
    Work work = comm.send_async(std::span(data), 1, 8, {.timeout = std::chrono::milliseconds(100)});
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!work.done() && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
    EXPECT_TRUE(work.done());
    work.wait();
  });
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("timeout: "),
                                   HasSubstr("send(300000 x f32) to rank 1 with tag 8"),
                                   HasSubstr("rank 1 has called no recv for it"))));
}

TEST_P(SendRecv, ARankThatHasClosedIsReportedToThoseWhoWaitForIt) {
  const Outcomes outcomes = run_ranks(2, config(), [](Communicator& comm) {
    std::vector<float> data(4);
    if (comm.rank() == 1) return comm.send(std::span(data), 0, 1);
    comm.recv(std::span(data), 1, 1);  // Messages sent before it left still arrive.
    comm.recv(std::span(data), kAnySource, 1);
  });
  EXPECT_THAT(outcomes[0], AllOf(StartsWith("peer_lost: "), HasSubstr("closed")));
  EXPECT_THAT(outcomes[1], IsEmpty());
}

TEST_P(SendRecv, AFailureEndsEverySendAndReceiveUnderWay) {
  run(2, [](Communicator& comm) {
    std::vector<float> data(kLarge), out(kLarge);
    std::vector<Work> works;
    if (comm.rank() == 0) {
      works.push_back(comm.recv_async(std::span(out), 1, 1));
      works.push_back(comm.send_async(std::span(data), 1, 2));
      works.push_back(comm.barrier_async());
    }
    const std::chrono::milliseconds timeout(comm.rank() == 0 ? 20'000 : 100);
    const std::string outcome =
        outcome_of([&] { comm.recv(std::span(out), 1 - comm.rank(), 3, {.timeout = timeout}); });
    EXPECT_THAT(outcome, StartsWith("timeout: "));
    for (Work& work : works) EXPECT_THAT(outcome_of([&] { work.wait(); }), StartsWith("timeout: "));
    EXPECT_TRUE(comm.failure().has_value());
  });
}

TEST_P(SendRecv, AGroupFusesCollectivesAndMessagesAndItsWorkTellsTheEnd) {
  run(2, [](Communicator& comm) {
    const int peer = 1 - comm.rank();
    std::vector<float> data = numbers(kLarge, comm.rank()), out(kLarge), sum(100, 1);
    Group group;
    for (int round = 0; round < 3; ++round) {
      Received got;
      comm.send(std::span(data), peer, 2, {.group = &group});
      comm.all_reduce(std::span(sum), Op::sum, {.group = &group});
      comm.recv(std::span(out), kAnySource, kAnyTag, {.group = &group, .received = &got});
      std::atomic<int> reported{0};
      Work work = group.end_async();
      work.then([&](const Error* error) { reported += error == nullptr ? 1 : 100; });
      work.wait();
      EXPECT_EQ(reported, 1);
      EXPECT_EQ(got.source, peer);
      EXPECT_EQ(got.count, kLarge);
      EXPECT_EQ(out[5], static_cast<float>(peer + 5));
      EXPECT_EQ(sum[99], static_cast<float>(2 << round));
    }
  });
}

TEST_P(SendRecv, AWrongGroupTellsItsFirstErrorAfterAllHaveEnded) {
  const Outcomes outcomes = run_ranks(2, config(), [](Communicator& comm) {
    std::vector<float> data(4), out(3);
    Group group;
    comm.send(std::span(data), 1 - comm.rank(), 1, {.group = &group});
    comm.recv(std::span(out), 1 - comm.rank(), 1, {.group = &group});
    comm.barrier({.group = &group});
    group.end();
  });
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("mismatch: "), HasSubstr("recv(3 x f32)"),
                                   HasSubstr("send(4 x f32)"))));
}

INSTANTIATE_TEST_SUITE_P(Transports, SendRecv, testing::Values("local", "shm", "tcp"),
                         [](const auto& tested) { return std::string(tested.param); });

// The call on the first communicator ends before the one on the second, in which the callback runs.
TEST(Groups, ACallbackOfTheirWorkMustNotBlockOnTheFirstCommunicatorThoughItsCallsHaveEnded) {
  std::vector<Communicator> first = Communicator::in_process(2, quick_config());
  std::vector<Communicator> second = Communicator::in_process(2, quick_config());
  std::vector<float> sent(1), received(1), grouped(1);
  Group group, within;
  first[0].send(std::span(sent), 1, 0, {.group = &group});
  second[0].recv(std::span(received), 1, 0, {.group = &group});
  Persistent barrier = first[0].barrier_init();
  std::vector<std::string> outcomes;
  Work work = group.end_async();
  work.then([&](const Error*) {
    outcomes.push_back(outcome_of([&] { first[0].barrier(); }));
    outcomes.push_back(outcome_of([&] { first[0].recv(std::span(received), 1); }));
    outcomes.push_back(outcome_of([&] { barrier.run(); }));
    outcomes.push_back(outcome_of([&] {
      first[0].send(std::span(grouped), 1, 0, {.group = &within});
      within.end();
    }));
  });
  Work theirs = first[1].recv_async(std::span(received), 0);
  while (CommunicatorImpl::of(first[0]).queue().pending()) std::this_thread::yield();
  theirs.wait();
  Work last = second[1].send_async(std::span(sent), 0);
  work.wait();
  last.wait();
  EXPECT_THAT(outcomes, testing::ElementsAre(
                            StartsWith("usage: a callback"), StartsWith("usage: a callback"),
                            StartsWith("usage: a callback"), StartsWith("usage: a callback")));
  Work there = first[1].barrier_async();
  first[0].barrier();
  there.wait();
}

TEST(Groups, OverTwoCommunicatorsMayNameThemInAnyOrder) {
  std::vector<Communicator> first = Communicator::in_process(2, quick_config());
  std::vector<Communicator> second = Communicator::in_process(2, quick_config());
  std::vector<std::string> outcomes(2);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      outcomes[rank] = outcome_of([&] {
        const int peer = rank == 0 ? 1 : 0;
        for (int round = 0; round < 50; ++round) {
          std::vector<float> sum(kLarge / 10, 1), top(kLarge / 10, 2), sent(kLarge / 10, 3);
          std::vector<float> out1(kLarge / 10), out2(kLarge / 10);
          Group group;
          const CallOptions in{.group = &group};
          const auto on_first = [&] {
            first[rank].all_reduce(std::span(sum), Op::sum, in);
            first[rank].send(std::span(sent), peer, 0, in);
            first[rank].recv(std::span(out1), peer, 0, in);
          };
          const auto on_second = [&] {
            second[rank].recv(std::span(out2), peer, 0, in);
            second[rank].all_reduce(std::span(top), Op::max, in);
            second[rank].send(std::span(sent), peer, 0, in);
          };
          rank == 0 ? on_first() : on_second();
          rank == 0 ? on_second() : on_first();
          round % 2 == 0 ? group.end() : group.end_async().wait();
          EXPECT_THAT(sum, AllAre(2.0F));
          EXPECT_THAT(top, AllAre(2.0F));
          EXPECT_THAT(out1, AllAre(3.0F));
          EXPECT_THAT(out2, AllAre(3.0F));
        }
      });
    });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST(Groups, ThatEndAfterACommunicatorOfTheirsWasDestroyedSayItAndMayBeUsedAgain) {
  for (const bool in_background : {false, true})
    EXPECT_THAT(
        run_ranks(2, quick_config(),
                  [&](Communicator& comm) {
                    std::vector<int> data(4, 1);
                    Group group;
                    {
                      Communicator dup = comm.dup();
                      comm.all_reduce(std::span(data), Op::sum, {.group = &group});
                      dup.send(std::span(data), 1 - comm.rank(), 0, {.group = &group});
                    }
                    EXPECT_THAT(
                        outcome_of([&] { in_background ? void(group.end_async()) : group.end(); }),
                        AllOf(StartsWith("usage: "), HasSubstr("of its 2 calls was destroyed")));
                    comm.all_reduce(std::span(data), Op::sum, {.group = &group});
                    group.end();
                    EXPECT_THAT(data, AllAre(2));
                  }),
        Each(IsEmpty()));
}

// The first communicator has made asynchronous calls before, and the second has not.
TEST(Groups, ThatCannotBeStartedForWantOfMemoryStartNothingAndKeepNoCommunicatorFromEnding) {
  if (!kCanBePoor) GTEST_SKIP() << "a sanitizer does not let operator new be replaced";
  bool failed = true;
  for (long count = 0; failed; ++count) {
    std::vector<Communicator> first = Communicator::in_process(1, quick_config());
    std::vector<Communicator> second = Communicator::in_process(1, quick_config());
    first[0].barrier_async().wait();
    Group group;
    first[0].barrier({.group = &group});
    second[0].barrier({.group = &group});
    Work work;
    fail_allocation(count);
    const std::string outcome = outcome_of([&] { work = group.end_async(); });
    fail_allocation(-1);
    failed = !outcome.empty();
    if (!failed) work.wait();
    for (auto* const ranks : {&first, &second})
      if (!CommunicatorImpl::of(ranks->front()).queue().empty()) {
        new std::vector<Communicator>(std::move(*ranks));  // its end would wait for ever
        FAIL() << "allocation " << count << " failed, and a call is under way: " << outcome;
      }
  }
}

TEST(Groups, SeveralThreadsSendOnACommunicatorEach) {
  constexpr int kThreads = 4;
  std::vector<std::vector<Communicator>> all;
  for (int k = 0; k < kThreads; ++k) all.push_back(Communicator::in_process(2, quick_config()));
  std::vector<std::string> outcomes(2 * kThreads);
  std::vector<std::thread> threads;
  for (std::size_t k = 0; k < outcomes.size(); ++k)
    threads.emplace_back([&, k] {
      outcomes[k] = outcome_of([&] {
        Communicator& comm = all[k / 2][k % 2];
        for (int round = 0; round < 200; ++round) {
          std::vector<int> data(round % 3 == 0 ? 5000 : 5, round), out(5000);
          Work work = comm.recv_async(std::span(out), 1 - comm.rank());
          comm.send(std::span(data), 1 - comm.rank());
          work.wait();
          ASSERT_EQ(out[4], round);
        }
      });
    });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST(SendRecvProcesses, AKilledPeerIsReportedToWhoeverWaitsForItsMessage) {
  const int port = unused_port();
  Processes ranks(3, [&](int rank) {
    set_environment(rank, 3, port);
    Communicator comm = Communicator::from_env(quick_config());
    comm.barrier();
    std::vector<float> data(kLarge);
    if (rank == 1) raise(SIGKILL);
    if (rank == 0) comm.recv(std::span(data), 1, 4);
    if (rank == 2) comm.send(std::span(data), 1, 4);
  });
  // Either finds that rank 1 is gone, or hears it from the other.
  EXPECT_THAT(ranks.outcome(0),
              AllOf(StartsWith("peer_lost: rank 0 of 3: "), HasSubstr("rank 1 is lost")));
  EXPECT_THAT(ranks.outcome(2), AllOf(StartsWith("peer_lost: "), HasSubstr("rank 1 is lost")));
}

TEST(SendRecvProcesses, NoWakeUpIsLostWhenRanksSleepBetweenMessages) {
  const int port = unused_port();
  Processes ranks(2, [&](int rank) {
    set_environment(rank, 2, port);
    Config config = quick_config();
    config.spin_polls = 0;
    Communicator comm = Communicator::from_env(config);
    std::vector<float> data(kLarge, 1);
    for (int i = 0; i < 300; ++i) {
      // The other rank goes to sleep in this time, or is about to. It must wake up in both cases.
      if (i % 2 == rank) std::this_thread::sleep_for(std::chrono::microseconds(500));
      const auto part = std::span(data).first(i % 3 == 0 ? kLarge : 2);
      rank == 0 ? comm.send(part, 1) : void(comm.recv(part, kAnySource));
      rank == 1 ? comm.send(part, 0) : void(comm.recv(part, 1));
    }
  });
  for (const int rank : {0, 1}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
}

}  // namespace
}  // namespace tutti::test
