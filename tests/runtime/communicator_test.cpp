// Tests of the public API as a program uses it: blocking and asynchronous calls, and every wrong
// argument.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstring>

#include "runtime/diagnosis/diagnosis.h"
#include "threads.h"

namespace tutti::test {
namespace {

class Communicators : public testing::TestWithParam<const char*> {
 protected:
  Config config() const { return quick_config(GetParam()); }
};

TEST_P(Communicators, AllReduceSumsWhatEveryRankHolds) {
  EXPECT_THAT(run_ranks(3, config(),
                        [](Communicator& comm) {
                          for (const std::size_t count : {1u, 2u, 1000u, 300'001u}) {
                            std::vector<float> data(count, static_cast<float>(comm.rank() + 1));
                            comm.all_reduce(std::span(data));
                            EXPECT_THAT(data, AllAre(6.0F));
                          }
                        }),
              Each(IsEmpty()));
}

TEST_P(Communicators, EveryOperationWorksOnOneRank) {
  EXPECT_THAT(run_ranks(1, config(),
                        [](Communicator& comm) {
                          const std::vector<double> in{1, 2, 3};
                          std::vector<double> out(3);
                          comm.all_reduce(in.data(), out.data(), 3, DataType::f64, Op::avg);
                          EXPECT_EQ(in, out);
                          out.assign(3, 0);
                          comm.reduce(in.data(), out.data(), 3, DataType::f64, Op::max, 0);
                          EXPECT_EQ(in, out);
                          out.assign(3, 0);
                          comm.all_gather(in.data(), out.data(), 3, DataType::f64);
                          EXPECT_EQ(in, out);
                          out.assign(3, 0);
                          comm.reduce_scatter(in.data(), out.data(), 3, DataType::f64, Op::prod);
                          EXPECT_EQ(in, out);
                          out.assign(3, 0);
                          comm.gather(in.data(), out.data(), 3, DataType::f64, 0);
                          EXPECT_EQ(in, out);
                          out.assign(3, 0);
                          comm.scatter(in.data(), out.data(), 3, DataType::f64, 0);
                          EXPECT_EQ(in, out);
                          out.assign(3, 0);
                          comm.all_to_all(in.data(), out.data(), 3, DataType::f64);
                          EXPECT_EQ(in, out);
                          comm.broadcast(std::span(out), 0);
                          EXPECT_EQ(in, out);
                          comm.barrier();
                        }),
              Each(IsEmpty()));
}

// Returns element i of the block that rank `from` has for rank `to`.
std::int32_t element(int from, int to, int i) { return from * 1'000'000 + to * 10'000 + i; }

TEST_P(Communicators, AScatterIsUndoneByAGatherInPlaceAndOutOfPlaceBlockingAndAsynchronous) {
  EXPECT_THAT(
      run_ranks(3, config(),
                [](Communicator& comm) {
                  constexpr int kCount = 1001, kRoot = 1;
                  const bool is_root = comm.rank() == kRoot;
                  std::vector<std::int32_t> all(is_root ? 3 * kCount : 0), own(kCount);
                  for (std::size_t i = 0; i < all.size(); ++i)
                    all[i] = element(kRoot, static_cast<int>(i) / kCount, int(i) % kCount);
                  const auto given = all;
                  comm.scatter(all.data(), own.data(), kCount, DataType::int32, kRoot);
                  for (int i = 0; i < kCount; ++i)
                    ASSERT_EQ(own[static_cast<std::size_t>(i)], element(kRoot, comm.rank(), i));
                  all.assign(all.size(), -1);
                  comm.gather_async(own.data(), all.data(), kCount, DataType::int32, kRoot).wait();
                  EXPECT_EQ(all, given);

                  std::int32_t* mine = is_root ? all.data() + kRoot * kCount : own.data();
                  comm.scatter_async(all.data(), mine, kCount, DataType::int32, kRoot).wait();
                  for (int i = 0; i < kCount; ++i)
                    ASSERT_EQ(mine[i], element(kRoot, comm.rank(), i));
                  comm.gather(mine, all.data(), kCount, DataType::int32, kRoot);
                  EXPECT_EQ(all, given);
                }),
      Each(IsEmpty()));
}

TEST_P(Communicators, AnAllToAllTransposesAndDoneTwiceInPlaceChangesNothing) {
  EXPECT_THAT(
      run_ranks(3, config(),
                [](Communicator& comm) {
                  for (const int count : {1, 1001, 300'000}) {
                    std::vector<std::int32_t> rows, columns;
                    for (int peer = 0; peer < 3; ++peer)
                      for (int i = 0; i < count; ++i) {
                        rows.push_back(element(comm.rank(), peer, i));
                        columns.push_back(element(peer, comm.rank(), i));
                      }
                    auto data = rows;
                    const auto n = static_cast<std::size_t>(count);
                    std::vector<std::int32_t> out(data.size());
                    comm.all_to_all(data.data(), out.data(), n, DataType::int32);
                    EXPECT_EQ(out, columns);
                    EXPECT_EQ(data, rows);
                    comm.all_to_all(data.data(), data.data(), n, DataType::int32);
                    EXPECT_EQ(data, columns);
                    comm.all_to_all_async(data.data(), data.data(), n, DataType::int32).wait();
                    EXPECT_EQ(data, rows);
                  }
                }),
      Each(IsEmpty()));
}

TEST_P(Communicators, TypedCallsTakeTheLengthOfABlockFromTheirSpans) {
  EXPECT_THAT(run_ranks(3, config(),
                        [](Communicator& comm) {
                          const int rank = comm.rank();
                          const std::vector<std::int16_t> own(2, static_cast<std::int16_t>(rank));
                          std::vector<std::int16_t> all(6, -1), block(2, -1), none;
                          comm.all_gather(own, std::span(all));
                          EXPECT_THAT(all, ElementsAre(0, 0, 1, 1, 2, 2));
                          comm.reduce_scatter(all, std::span(block));
                          EXPECT_THAT(block, AllAre(3 * rank));
                          comm.reduce_scatter(std::span(all), std::span(block), Op::max);
                          EXPECT_THAT(block, AllAre(rank));
                          all.assign(6, -1);
                          comm.gather(own, std::span(rank == 1 ? all : none), 1);
                          if (rank == 1) {
                            EXPECT_THAT(all, ElementsAre(0, 0, 1, 1, 2, 2));
                          }
                          comm.scatter(rank == 1 ? all : none, std::span(block), 1);
                          EXPECT_THAT(block, AllAre(rank));
                          all.assign(6, static_cast<std::int16_t>(rank));
                          std::vector<std::int16_t> exchanged(6);
                          comm.all_to_all(all, std::span(exchanged));
                          EXPECT_THAT(exchanged, ElementsAre(0, 0, 1, 1, 2, 2));

                          const auto refused = [&](const std::function<void()>& body) {
                            EXPECT_THAT(outcome_of(body),
                                        StartsWith("usage: a buffer for all 3 ranks"));
                          };
                          all.resize(5);
                          refused([&] { comm.all_gather(own, std::span(all)); });
                          refused([&] { comm.reduce_scatter(all, std::span(block)); });
                          refused([&] { comm.gather(own, std::span(all), rank); });
                          refused([&] { comm.scatter(all, std::span(block), rank); });
                          refused([&] { comm.all_to_all(all, std::span(exchanged)); });
                          refused([&] { comm.all_to_all(exchanged, std::span(all)); });
                          comm.barrier();
                        }),
              Each(IsEmpty()));
}

TEST_P(Communicators, UnalignedBuffersGiveTheSameResult) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          std::vector<char> bytes(4 * 10'001 + 1);
                          char* unaligned = bytes.data() + 1;
                          for (int i = 0; i < 10'001; ++i) {
                            const float x = static_cast<float>(i % 100);
                            std::memcpy(unaligned + 4 * i, &x, 4);
                          }
                          comm.all_reduce(unaligned, unaligned, 10'001, DataType::f32, Op::sum);
                          for (int i = 0; i < 10'001; ++i) {
                            float x = 0;
                            std::memcpy(&x, unaligned + 4 * i, 4);
                            ASSERT_EQ(x, static_cast<float>(2 * (i % 100)));
                          }
                        }),
              Each(IsEmpty()));
}

TEST_P(Communicators, AsynchronousCallsRunInIssueOrderAndAnyOfThemCanBeWaitedFor) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          std::vector<std::vector<std::int64_t>> data(
                              20, std::vector<std::int64_t>(10'000, comm.rank() + 1));
                          std::vector<Work> works;
                          for (auto& each : data)
                            works.push_back(comm.all_reduce_async(std::span(each)));
                          // A blocking call behind asynchronous ones waits for its turn.
                          comm.barrier();
                          for (const Work& work : works) EXPECT_TRUE(work.done());
                          for (Work& work : works) work.wait();
                          for (const auto& each : data) EXPECT_THAT(each, AllAre(3));
                        }),
              Each(IsEmpty()));
}

TEST_P(Communicators, AnAsynchronousCallEndsWhileTheProgramComputes) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          std::vector<float> data(100'000, 1);
                          const Work work = comm.all_reduce_async(std::span(data));
                          const auto patience =
                              std::chrono::steady_clock::now() + std::chrono::seconds(20);
                          while (!work.done() && std::chrono::steady_clock::now() < patience)
                            std::this_thread::yield();
                          // No thread waited for the work: the background thread completed it.
                          EXPECT_TRUE(work.done());
                          EXPECT_THAT(data, AllAre(2.0F));
                        }),
              Each(IsEmpty()));
}

TEST_P(Communicators, WaitingForALimitedTimeEndsOnlyTheWaiting) {
  std::atomic<bool> has_waited = false;
  EXPECT_THAT(run_ranks(2, config(),
                        [&](Communicator& comm) {
                          std::vector<float> data(10, 1);
                          if (comm.rank() == 0) {
                            Work work = comm.all_reduce_async(std::span(data));
                            const std::string outcome =
                                outcome_of([&] { work.wait(std::chrono::milliseconds(5)); });
                            EXPECT_THAT(outcome, StartsWith("timeout: "));
                            EXPECT_FALSE(work.wait_for(std::chrono::milliseconds(5)));
                            EXPECT_FALSE(comm.failure().has_value());
                            has_waited = true;
                            has_waited.notify_one();
                            EXPECT_TRUE(work.wait_for(std::chrono::seconds(20)));
                          } else {
                            has_waited.wait(false);
                            comm.all_reduce(std::span(data));
                          }
                          EXPECT_THAT(data, AllAre(2.0F));
                        }),
              Each(IsEmpty()));
}

TEST_P(Communicators, AWrongArgumentIsRefusedAndTheCommunicatorGoesOn) {
  EXPECT_THAT(
      run_ranks(
          2, config(),
          [](Communicator& comm) {
            std::vector<float> a(100, 1), b(200);
            const auto refused = [&](const char* words, auto&& call) {
              EXPECT_THAT(outcome_of(call), AllOf(StartsWith("usage: "), HasSubstr(words)));
            };
            refused("input is null",
                    [&] { comm.all_reduce(nullptr, b.data(), 1, DataType::f32, Op::sum); });
            refused("output is null",
                    [&] { comm.all_reduce(a.data(), nullptr, 1, DataType::f32, Op::sum); });
            refused("overlap",
                    [&] { comm.all_reduce(b.data(), b.data() + 1, 100, DataType::f32, Op::sum); });
            refused("overlap", [&] { comm.all_gather(b.data() + 1, b.data(), 50, DataType::f32); });
            const auto root = comm.rank();
            refused("gather: input is null",
                    [&] { comm.gather(nullptr, b.data(), 1, DataType::f32, 0); });
            refused("gather: output is null",
                    [&] { comm.gather(a.data(), nullptr, 1, DataType::f32, root); });
            refused("gather: root 7",
                    [&] { comm.gather(a.data(), b.data(), 1, DataType::f32, 7); });
            refused("input == output + rank * count", [&] {
              comm.gather(b.data() + (1 - root) * 50, b.data(), 50, DataType::f32, root);
            });
            refused("scatter: input is null",
                    [&] { comm.scatter(nullptr, b.data(), 1, DataType::f32, root); });
            refused("scatter: root -1",
                    [&] { comm.scatter(a.data(), b.data(), 1, DataType::f32, -1); });
            refused("output == input + rank * count",
                    [&] { comm.scatter(b.data(), b.data() + 10, 50, DataType::f32, root); });
            refused("input == output",
                    [&] { comm.all_to_all(b.data(), b.data() + 50, 50, DataType::f32); });
            refused("more than memory",
                    [&] { comm.all_to_all(a.data(), b.data(), SIZE_MAX / 8, DataType::f32); });
            refused("root 2 is not a rank", [&] { comm.broadcast(a.data(), 1, DataType::f32, 2); });
            refused("root -1 is not a rank",
                    [&] { comm.reduce(a.data(), b.data(), 1, DataType::f32, Op::sum, -1); });
            refused("more than memory", [&] {
              comm.all_reduce(a.data(), b.data(), SIZE_MAX / 4 + 1, DataType::f32, Op::sum);
            });
            refused("more than memory",
                    [&] { comm.all_gather(a.data(), b.data(), SIZE_MAX / 8, DataType::f32); });
            refused("complex64",
                    [&] { comm.all_reduce(a.data(), b.data(), 1, DataType::complex64, Op::min); });
            refused("no data type 99",
                    [&] { comm.broadcast(a.data(), 1, static_cast<DataType>(99), 0); });
            refused("'rong' is unknown; known are auto, ring", [&] {
              comm.all_reduce(a.data(), b.data(), 1, DataType::f32, Op::sum,
                              {std::chrono::milliseconds(0), "rong"});
            });
            comm.all_reduce(a.data(), b.data(), 100, DataType::f32, Op::sum);
            EXPECT_EQ(b[99], 2.0F);
            EXPECT_FALSE(comm.failure().has_value());
          }),
      Each(IsEmpty()));
}

TEST_P(Communicators, DifferentCountsAreReportedOnBothRanksWithWhatEachCalled) {
  const Outcomes outcomes = run_ranks(2, config(), [](Communicator& comm) {
    std::vector<float> data(1000, 1);
    comm.all_reduce(std::span(data));
    comm.all_reduce(std::span(data).first(comm.rank() == 0 ? 10 : 500));
  });
  EXPECT_THAT(outcomes,
              Each(AllOf(StartsWith("mismatch: "), HasSubstr("all_reduce(10 x f32, sum)"),
                         HasSubstr("all_reduce(500 x f32, sum)"), HasSubstr("operation #1"))));
}

TEST_P(Communicators, DifferentOperationsAreReportedOnAllRanks) {
  const Outcomes outcomes = run_ranks(3, config(), [](Communicator& comm) {
    std::vector<std::int32_t> data(100, 1);
    if (comm.rank() == 1)
      comm.reduce(data.data(), data.data(), 100, DataType::int32, Op::max, 0);
    else
      comm.all_reduce(std::span(data), Op::max);
    comm.barrier();
  });
  EXPECT_THAT(outcomes,
              Each(AllOf(StartsWith("mismatch: "), HasSubstr("reduce(100 x int32, max, root 0)"),
                         HasSubstr("all_reduce(100 x int32, max)"))));
}

TEST_P(Communicators, DifferentTypesAreReportedOnBothRanks) {
  const Outcomes outcomes = run_ranks(2, config(), [](Communicator& comm) {
    std::vector<float> data(64, 1);
    comm.all_reduce(data.data(), data.data(), 64,
                    comm.rank() == 0 ? DataType::f32 : DataType::int32, Op::sum);
  });
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("mismatch: "), HasSubstr("64 x f32"),
                                   HasSubstr("64 x int32"))));
}

// Rank 1 and rank 2 have completed their parts, as far as they can know, and have left.
TEST_P(Communicators, ARankThatNamedAnotherRootAndLeftIsNoticedAtOnce) {
  const auto outcomes = run_ranks(3, config(), [](Communicator& comm) {
    std::vector<float> data(100, 1), sum(100);
    comm.reduce(data.data(), sum.data(), 100, DataType::f32, Op::sum, comm.rank() == 2 ? 1 : 0);
  });
  EXPECT_THAT(outcomes[0], AllOf(StartsWith("mismatch: "), HasSubstr("root 0"),
                                 HasSubstr("rank 2 called"), HasSubstr("root 1")));
}

TEST_P(Communicators, ARankThatNeverCallsIsNamedAtTheDeadlineAndTheFailureSticks) {
  // Over TCP a rank that waits asks its peers for their state and has the answer within half a
  // second.
  const bool asks = over_network(GetParam());
  std::atomic<int> given_up = 0;
  std::barrier both(2);
  const Outcomes outcomes = run_ranks(3, config(), [&](Communicator& comm) {
    std::vector<float> data(8, 1);
    comm.all_reduce(std::span(data));
    if (comm.rank() == 2) {
      // This rank calls only after the others have given up. It is notified of that, at the latest
      // in its next call.
      for (int seen = given_up; seen < 2; seen = given_up) given_up.wait(seen);
      comm.all_reduce(std::span(data));
      comm.barrier();
      return;
    }
    const CallOptions short_deadline{std::chrono::milliseconds(asks ? 1000 : 400), {}};
    both.arrive_and_wait();  // Neither may give up because the other is late.
    const std::string first =
        outcome_of([&] { comm.all_reduce(std::span(data), Op::sum, short_deadline); });
    ++given_up;
    given_up.notify_one();
    const std::string again = outcome_of([&] { comm.barrier(); });
    EXPECT_EQ(first, again);
    EXPECT_TRUE(comm.failure().has_value());
    throw comm.failure().value();
  });
  EXPECT_THAT(outcomes,
              Each(AllOf(StartsWith("timeout: "), HasSubstr("rank 2 has not called it"),
                         HasSubstr("its last call is operation #0 all_reduce(8 x f32, sum)"))));
}

TEST_P(Communicators, ARankThatLeavesIsReportedAsLost) {
  const Outcomes outcomes = run_ranks(2, config(), [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0) comm.barrier();
  });
  EXPECT_THAT(outcomes[0],
              AllOf(StartsWith("peer_lost: "), HasSubstr("rank 1 has closed its communicator")));
  EXPECT_THAT(outcomes[1], IsEmpty());
}

TEST_P(Communicators, QueuedCallsAllEndWithTheErrorOfTheFirst) {
  const Outcomes outcomes = run_ranks(2, config(), [](Communicator& comm) {
    std::vector<float> data(8, 1);
    if (comm.rank() == 1) return;
    std::vector<Work> works;
    for (int i = 0; i < 5; ++i) works.push_back(comm.all_reduce_async(std::span(data)));
    for (Work& work : works)
      EXPECT_THAT(outcome_of([&] { work.wait(); }), HasSubstr("rank 1 has closed"));
    EXPECT_THAT(outcome_of([&] { comm.barrier_async(); }), HasSubstr("rank 1 has closed"));
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST_P(Communicators, ACallAfterForkIsRefusedInTheChildAndTheParentGoesOn) {
  const Outcomes outcomes = run_ranks(2, config(), [](Communicator& comm) {
    std::vector<float> data(8, 1);
    comm.all_reduce(std::span(data));
    if (comm.rank() == 0) {
      const pid_t child = fork();
      if (child == 0) {
        const auto refused = [](const std::string& outcome) {
          return outcome.starts_with("usage: ") && outcome.find("forked") != std::string::npos;
        };
        const bool call = refused(outcome_of([&] { comm.all_reduce(std::span(data)); }));
        const bool question = refused(outcome_of([&] { comm.memory_bytes(); }));
        { const Communicator dies_in_the_child = std::move(comm); }
        _exit((call ? 0 : 1) + (question ? 0 : 2));
      }
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
    comm.all_reduce(std::span(data));
    EXPECT_THAT(data, AllAre(4.0F));
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Transports, Communicators,
                         testing::ValuesIn(and_ucx({"local", "shm", "tcp"})),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(Communicator, WorldSizesAndRanksOutOfRangeAreRefused) {
  const auto store = std::make_shared<MemoryStore>();
  EXPECT_THAT(outcome_of([&] { Communicator::create(store, 0, 0, quick_config()); }),
              StartsWith("usage: "));
  EXPECT_THAT(outcome_of([&] { Communicator::create(store, 2, 2, quick_config()); }),
              HasSubstr("rank 2 of 2"));
  EXPECT_THAT(outcome_of([&] { Communicator::create(nullptr, 0, 1, quick_config()); }),
              HasSubstr("store"));
  EXPECT_THAT(outcome_of([&] { Communicator::in_process(0, quick_config()); }),
              StartsWith("usage: "));
}

TEST(Communicator, AFailureThatRanksPassOnIsQuotedOnce) {
  const auto status_page = std::make_unique<StatusPage>();
  status_page->fail(ErrorKind::mismatch, "rank 2 of 4: operation #7 barrier(): what it said");
  const std::string first = reported_failure(2, *status_page);
  EXPECT_EQ(first,
            "rank 2 has failed and reports: rank 2 of 4: operation #7 barrier(): what it said");
  status_page->fail(ErrorKind::mismatch, "rank 1 of 4: operation #7 barrier(): " + first);
  EXPECT_EQ(reported_failure(1, *status_page), first);
}

TEST(Communicator, AnAlgorithmThatNobodyKnowsIsRefusedAtTheStart) {
  Config config = quick_config();
  config.algorithm = "rong";
  const auto expected =
      AllOf(StartsWith("usage: TUTTI_ALGORITHM"), HasSubstr("'rong' is unknown; known are auto, "));
  EXPECT_THAT(outcome_of([&] { Communicator::in_process(2, config); }), expected);
  EXPECT_THAT(
      outcome_of([&] { Communicator::create(std::make_shared<MemoryStore>(), 0, 1, config); }),
      expected);
}

TEST(Communicator, AMissingRankIsATimeoutAtStartThatNamesIt) {
  Config config = quick_config("shm");
  config.startup_timeout = std::chrono::milliseconds(200);
  const auto store = std::make_shared<MemoryStore>();
  EXPECT_THAT(
      outcome_of([&] { Communicator::create(store, 0, 2, config); }),
      AllOf(StartsWith("timeout: "), HasSubstr("1"), HasSubstr("TUTTI_STARTUP_TIMEOUT_MS")));
}

TEST(Communicator, SettingsThatDifferAreAMismatchOnEveryRankNamingThem) {
  const auto store = std::make_shared<MemoryStore>();
  Outcomes outcomes(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      Config config = quick_config("shm");
      config.algorithm = rank == 0 ? "ring" : "all_pairs";
      outcomes[static_cast<std::size_t>(rank)] =
          outcome_of([&] { Communicator::create(store, rank, 2, config); });
    });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(outcomes,
              Each(AllOf(StartsWith("mismatch: "), HasSubstr("ring"), HasSubstr("all_pairs"))));
}

TEST(Communicator, StartupIsReportedByPhase) {
  EXPECT_THAT(run_ranks(2, quick_config("shm"),
                        [](Communicator& comm) {
                          std::string names;
                          for (const StartupPhase& phase : comm.startup())
                            names += phase.name + " ";
                          EXPECT_EQ(names, "transport rendezvous connect ");
                        }),
              Each(IsEmpty()));
}

TEST(Communicator, SeveralCommunicatorsOverOneStoreDoNotMeet) {
  const auto store = std::make_shared<MemoryStore>();
  Outcomes outcomes(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      outcomes[static_cast<std::size_t>(rank)] = outcome_of([&] {
        Communicator first = Communicator::create(store, rank, 2, quick_config("shm"));
        Communicator second = Communicator::create(store, rank, 2, quick_config("shm"));
        std::vector<float> a(100, 1), b(100, 2);
        Work one = first.all_reduce_async(std::span(a));
        Work two = second.all_reduce_async(std::span(b));
        two.wait();
        one.wait();
        EXPECT_THAT(a, AllAre(2.0F));
        EXPECT_THAT(b, AllAre(4.0F));
      });
    });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

// Each chunk takes at least a cache line, so that no algorithm can be chosen that puts one chunk of
// each rank into a message.
TEST(ManyRanks, WorkTogetherWithMessagesOfLessThanALineForEach) {
  constexpr int kRanks = 65;
  Config config = quick_config();
  config.message_bytes = 4096;
  EXPECT_THAT(run_ranks(kRanks, config,
                        [](Communicator& comm) {
                          for (const std::size_t count : {1u, 1000u}) {
                            std::vector<int> mine(count, comm.rank()), all(kRanks * count),
                                ones(all.size(), 1);
                            comm.all_reduce(std::span(mine), Op::max);
                            EXPECT_THAT(mine, AllAre(kRanks - 1));
                            comm.broadcast(std::span(mine), 3);
                            comm.reduce(mine.data(), all.data(), count, DataType::int32, Op::min,
                                        2);
                            std::fill(mine.begin(), mine.end(), comm.rank());
                            comm.all_gather(std::span<const int>(mine), std::span(all));
                            for (std::size_t i = 0; i < all.size(); ++i)
                              ASSERT_EQ(all[i], static_cast<int>(i / count));
                            comm.reduce_scatter(std::span<const int>(ones), std::span(mine));
                            EXPECT_THAT(mine, AllAre(kRanks));
                            comm.gather(mine.data(), all.data(), count, DataType::int32, 1);
                            comm.scatter(all.data(), mine.data(), count, DataType::int32, 1);
                            EXPECT_THAT(mine, AllAre(kRanks));
                            comm.all_to_all(ones.data(), all.data(), count, DataType::int32);
                            EXPECT_THAT(all, AllAre(1));
                            comm.barrier();
                          }
                          EXPECT_TRUE(comm.split(comm.rank() % 2, 0));
                        }),
              Each(IsEmpty()));
}

TEST_P(Communicators, AStreamIsUnavailableWithoutADriver) {
  EXPECT_THAT(
      run_ranks(2, config(),
                [](Communicator& comm) {
                  int stream = 0;
                  float value = 1;
                  const CallOptions ordered{.stream = &stream};
                  EXPECT_THAT(
                      outcome_of([&] { comm.all_reduce(std::span(&value, 1), Op::sum, ordered); }),
                      AllOf(StartsWith("unavailable: all_reduce: the call is ordered"),
                            HasSubstr("has not loaded the CUDA driver")));
                  EXPECT_THAT(outcome_of([&] { comm.send(std::span(&value, 1), 0, 0, ordered); }),
                              StartsWith("unavailable: send: the call is ordered"));
                  EXPECT_THAT(outcome_of([&] { comm.recv(std::span(&value, 1), 0, 0, ordered); }),
                              StartsWith("unavailable: recv: the call is ordered"));
                  comm.all_reduce(std::span(&value, 1), Op::sum);
                  EXPECT_EQ(value, 2);
                }),
      Each(IsEmpty()));
}

}  // namespace
}  // namespace tutti::test
