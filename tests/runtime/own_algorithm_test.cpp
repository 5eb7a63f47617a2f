// Tests of algorithms that the program defines: they are verified and run, or refused on every
// rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include <tutti/schedule.hpp>

#include "threads.h"

namespace tutti::test {
namespace {

/// All data goes to rank `centre`, is reduced there in the order of ranks, and comes back.
Schedule star_around(int centre, const PlanRequest& request) {
  ScheduleBuilder plan(request, 1);
  const Verbs lane = plan.lane();
  Peers others;
  for (int rank = 0; rank < request.ranks; ++rank)
    if (rank != centre) others.push_back(rank);
  if (request.rank == centre) {
    const auto result = lane.reduce_copy_send(in_rank_order(request, 0), 0, others);
    if (request.what == Collective::all_reduce) result.completes();
  } else {
    lane.send(0, {centre});
    lane.receive(centre, 0);
  }
  return std::move(plan).finish();
}

Schedule star(const PlanRequest& request) { return star_around(0, request); }

/// A reduce to the last rank, in which each rank adds its input to the data that it receives.
Schedule chain(const PlanRequest& request) {
  ScheduleBuilder plan(request, 1);
  const Verbs lane = plan.lane();
  if (request.rank == 0)
    lane.send(0, {1});
  else if (request.rank + 1 < request.ranks)
    lane.receive_reduce_send(request.rank - 1, 0, {request.rank + 1});
  else
    lane.receive_reduce(request.rank - 1, 0).completes();
  return std::move(plan).finish();
}

/// Both ranks of a pair wait for the other's message before they send theirs.
Schedule polite(const PlanRequest& request) {
  ScheduleBuilder plan(request, 1);
  const Verbs lane = plan.lane();
  const int other = 1 - request.rank;
  lane.step({peer(other)}, {output(0)}, 0);
  lane.send(0, {other});
  return std::move(plan).finish();
}

CallOptions by(std::string_view algorithm) { return {std::chrono::milliseconds(0), algorithm}; }

class OwnAlgorithm : public testing::TestWithParam<const char*> {
 protected:
  Config config() const { return quick_config(GetParam()); }
};

TEST_P(OwnAlgorithm, ServesReproducibleSumsWhereItAddsUpAllInOneStep) {
  EXPECT_THAT(
      run_ranks(3, config(),
                [](Communicator& comm) {
                  comm.add_algorithm("star", star);
                  comm.add_algorithm("chain", chain);
                  const auto exactly_by = [](std::string_view name) {
                    return CallOptions{{}, name, nullptr, Accumulate::reproducible};
                  };
                  // Added one after the other, these give 0, 1 or 2, depending on the order.
                  std::vector<float> data(
                      50, std::array{1e8F, 2.0F, -1e8F}[static_cast<std::size_t>(comm.rank())]);
                  comm.all_reduce(std::span(data), Op::sum, exactly_by("star"));
                  EXPECT_THAT(data, AllAre(2.0F));
                  EXPECT_THAT(outcome_of([&] {
                                comm.reduce(data.data(), data.data(), 50, DataType::f32, Op::sum, 2,
                                            exactly_by("chain"));
                              }),
                              AllOf(StartsWith("usage"), HasSubstr("in one step")));
                  std::vector<float> ones(50, 1);
                  comm.reduce(ones.data(), ones.data(), 50, DataType::f32, Op::sum, 2, by("chain"));
                  EXPECT_THAT(ones, AllAre(comm.rank() == 2 ? 3.0F : 1.0F));
                }),
      Each(IsEmpty()));
}

TEST_P(OwnAlgorithm, RunsEveryCollectiveThatItPlansBlockingAndNot) {
  EXPECT_THAT(run_ranks(4, config(),
                        [](Communicator& comm) {
                          comm.add_algorithm("star", star);
                          for (const std::size_t count : {0u, 1u, 1000u, 300'001u}) {
                            std::vector<float> data(count, static_cast<float>(comm.rank() + 1));
                            comm.all_reduce(std::span(data), Op::sum, by("star"));
                            EXPECT_THAT(data, AllAre(10.0F));
                            comm.all_reduce_async(std::span(data), Op::avg, by("star")).wait();
                            EXPECT_THAT(data, AllAre(10.0F));
                            comm.all_reduce(std::span(data));
                            EXPECT_THAT(data, AllAre(40.0F));
                          }
                          comm.barrier(by("star"));
                        }),
              Each(IsEmpty()));
}

TEST_P(OwnAlgorithm, ServesPersistentCallsAndIsRefusedWhenTheyAreMade) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          comm.add_algorithm("star", star);
                          comm.add_algorithm("polite", polite);
                          std::vector<float> data(100, 1);
                          const auto made_by = [&](std::string_view name) {
                            return comm.all_reduce_init(data.data(), data.data(), data.size(),
                                                        DataType::f32, Op::sum, by(name));
                          };
                          EXPECT_THAT(outcome_of([&] { made_by("polite"); }),
                                      HasSubstr("deadlock"));
                          Persistent call = made_by("star");
                          call.run();
                          call.start().wait();
                          EXPECT_THAT(data, AllAre(4.0F));
                        }),
              Each(IsEmpty()));
}

TEST_P(OwnAlgorithm, IsProvedAtItsFirstUseAloneAndPlannedForEveryRank) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          int planned = 0;
                          comm.add_algorithm("star", [&](const PlanRequest& request) {
                            ++planned;
                            return star(request);
                          });
                          EXPECT_EQ(planned, 0);
                          std::vector<float> data(100);
                          // This is more programs than the cache keeps.
                          for (int i = 1; i <= 600; ++i)
                            comm.all_reduce(
                                std::span(data).first(static_cast<std::size_t>(i) % 100),
                                i % 2 == 0 ? Op::sum : Op::max, by("star"));
                          EXPECT_EQ(planned, 2);
                          comm.barrier(by("star"));
                          EXPECT_EQ(planned, 4);
                        }),
              Each(IsEmpty()));
}

TEST_P(OwnAlgorithm, AMissingContributionIsRefusedOnEveryRankNamingItAndTheCommunicatorGoesOn) {
  EXPECT_THAT(
      run_ranks(
          3, config(),
          [](Communicator& comm) {
            comm.add_algorithm("forgetful", [](const PlanRequest& request) {
              Schedule schedule = star(request);
              if (request.rank == 0) schedule.lanes[0].steps[0].in.pop_back();
              return schedule;
            });
            std::vector<float> data(8, 1);
            for (int again = 0; again < 2; ++again)
              EXPECT_THAT(
                  outcome_of([&] { comm.all_reduce(std::span(data), Op::sum, by("forgetful")); }),
                  AllOf(StartsWith("usage: algorithm 'forgetful' is wrong for "
                                   "all_reduce of 3 ranks: rank 0"),
                        HasSubstr("chunk 0"), HasSubstr("misses the contribution of rank 2")));
            comm.all_reduce(std::span(data));
            EXPECT_THAT(data, AllAre(3.0F));
            EXPECT_FALSE(comm.failure().has_value());
          }),
      Each(IsEmpty()));
}

TEST_P(OwnAlgorithm, ADeadlockIsRefusedOnEveryRankWithTheCircleOfWaitingLanes) {
  EXPECT_THAT(
      run_ranks(2, config(),
                [](Communicator& comm) {
                  comm.add_algorithm("polite", polite);
                  std::vector<float> data(8, 1);
                  EXPECT_THAT(
                      outcome_of([&] { comm.all_reduce(std::span(data), Op::sum, by("polite")); }),
                      AllOf(StartsWith("usage: "),
                            HasSubstr("deadlock: rank 0 lane 0 step 0 (chunk 0, piece 0 of "
                                      "operation 0) waits for a message from rank 1"),
                            HasSubstr("rank 1 lane 0 step 0")));
                  comm.barrier();
                }),
      Each(IsEmpty()));
}

TEST_P(OwnAlgorithm, RanksThatPlanDifferentlyGetAMismatchThatSaysSo) {
  const Outcomes outcomes = run_ranks(2, config(), [](Communicator& comm) {
    const int centre = comm.rank();
    comm.add_algorithm("star",
                       [=](const PlanRequest& request) { return star_around(centre, request); });
    std::vector<float> data(8, 1);
    comm.all_reduce(std::span(data), Op::sum, by("star"));
  });
  EXPECT_THAT(outcomes,
              Each(AllOf(StartsWith("mismatch: "), HasSubstr("all_reduce(8 x f32, sum)"),
                         HasSubstr("by an algorithm of the program's own that has another name, "
                                   "or plans otherwise, than this rank's"))));
}

TEST_P(OwnAlgorithm, ARankThatUsesABuiltInOneInsteadIsAMismatchThatNamesBoth) {
  const Outcomes outcomes = run_ranks(2, config(), [](Communicator& comm) {
    comm.add_algorithm("star", star);
    std::vector<float> data(8, 1);
    comm.all_reduce(std::span(data), Op::sum, by(comm.rank() == 0 ? "star" : "ring"));
  });
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("mismatch: "), HasSubstr("algorithm ring"),
                                   HasSubstr("an algorithm of the program's own"))));
}

TEST_P(OwnAlgorithm, ServesTheCommunicatorsThatAreSplitOffAndIsProvedForTheirRanks) {
  EXPECT_THAT(
      run_ranks(4, config(),
                [](Communicator& comm) {
                  int planned = 0;
                  comm.add_algorithm("star", [&](const PlanRequest& request) {
                    ++planned;
                    return star(request);
                  });
                  const auto sum_by = [](std::string_view algorithm, Communicator& of) {
                    float one = 1;
                    of.all_reduce(std::span(&one, 1), Op::sum, by(algorithm));
                    return one;
                  };
                  Communicator dup = comm.dup();
                  EXPECT_EQ(sum_by("star", dup), 4);
                  EXPECT_EQ(planned, 4) << "once for each of its ranks";
                  auto half = dup.split(comm.rank() / 2);
                  EXPECT_EQ(sum_by("star", *half), 2);
                  EXPECT_EQ(planned, 6);
                  auto three = comm.subgroup(std::array{3, 0, 2});
                  EXPECT_EQ(three ? sum_by("star", *three) : 3, 3);

                  EXPECT_THAT(
                      outcome_of([&] { dup.add_algorithm("star", star); }),
                      AllOf(StartsWith("usage: "), HasSubstr("or one that it was split off")));
                  dup.add_algorithm("later", star);
                  EXPECT_EQ(sum_by("later", dup), 4);
                  EXPECT_THAT(outcome_of([&] { sum_by("later", comm); }),
                              HasSubstr("'later' is unknown"));
                  EXPECT_THAT(outcome_of([&] { sum_by("later", *half); }), HasSubstr("unknown"));
                }),
      Each(IsEmpty()));
}

TEST_P(OwnAlgorithm, ThatDiffersBetweenRanksIsAMismatchInWhatIsSplitOffAlone) {
  EXPECT_THAT(run_ranks(2, config(),
                        [](Communicator& comm) {
                          const int centre = comm.rank();
                          comm.add_algorithm("star", [=](const PlanRequest& request) {
                            return star_around(centre, request);
                          });
                          Communicator dup = comm.dup();
                          float one = 1;
                          EXPECT_THAT(outcome_of([&] {
                                        dup.all_reduce(std::span(&one, 1), Op::sum, by("star"));
                                      }),
                                      StartsWith("mismatch: "));
                          comm.barrier();
                        }),
              Each(IsEmpty()));
}

TEST_P(OwnAlgorithm, IsToldTheGroupsThatTheConfigurationSaysAndSoAreTheBuiltInOnes) {
  constexpr float kBig = 1e8F;  // A 1 added to it is lost.
  const auto with_groups_of = [&](int ranks) {
    Config grouped = config();
    grouped.group_size = ranks;
    return grouped;
  };
  const auto sums = [](Communicator& comm, const std::array<float, 4>& by_rank) {
    std::vector<float> data(64, by_rank[static_cast<std::size_t>(comm.rank())]);
    comm.all_reduce(std::span(data), Op::sum, by("hierarchical"));
    return data;
  };
  const auto groups_of = [](Communicator& comm) {
    std::vector<int> groups;
    comm.add_algorithm("curious", [&](const PlanRequest& request) {
      groups = request.groups;
      return star(request);
    });
    comm.barrier(by("curious"));
    return groups;
  };
  EXPECT_THAT(run_ranks(4, with_groups_of(2),
                        [&](Communicator& comm) {
                          EXPECT_THAT(sums(comm, {kBig, 1, -kBig, 1}), AllAre(0)) << "pair by pair";
                          // If the ranks are in another order, the groups move with them.
                          auto crossed = comm.split(0, comm.rank() % 2);
                          EXPECT_THAT(sums(*crossed, {kBig, -kBig, 1, 1}), AllAre(0));
                          EXPECT_EQ(groups_of(*crossed), (std::vector{0, 1, 0, 1}));
                          EXPECT_EQ(groups_of(comm), (std::vector{0, 0, 1, 1}));
                        }),
              Each(IsEmpty()));
  EXPECT_THAT(run_ranks(4, with_groups_of(4),
                        [&](Communicator& comm) {
                          EXPECT_THAT(sums(comm, {kBig, 1, -kBig, 1}), Contains(1)) << "one ring";
                        }),
              Each(IsEmpty()));
  EXPECT_THAT(run_ranks(2, with_groups_of(0),
                        [&](Communicator& comm) { EXPECT_THAT(groups_of(comm), IsEmpty()); }),
              Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Transports, OwnAlgorithm, testing::Values("local", "shm"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(OwnAlgorithms, WhatIsNoAlgorithmIsRefused) {
  EXPECT_THAT(
      run_ranks(2, quick_config(),
                [](Communicator& comm) {
                  const auto refused = [&](const char* words, auto&& call) {
                    EXPECT_THAT(outcome_of(call), AllOf(StartsWith("usage: "), HasSubstr(words)));
                  };
                  refused("a name that tutti uses", [&] { comm.add_algorithm("ring", star); });
                  refused("a name that tutti uses", [&] { comm.add_algorithm("auto", star); });
                  refused("a name that tutti uses", [&] { comm.add_algorithm("", star); });
                  refused("the function is empty", [&] { comm.add_algorithm("none", {}); });
                  comm.add_algorithm("star", star);
                  refused("'star' was added", [&] { comm.add_algorithm("star", star); });
                  std::vector<float> data(8, 1), all(16);
                  refused("'stars' is unknown",
                          [&] { comm.all_reduce(std::span(data), Op::sum, by("stars")); });
                  refused("'star' is wrong for all_gather of 2 ranks: rank 0: chunks is 1", [&] {
                    comm.all_gather(data.data(), all.data(), 8, DataType::f32, by("star"));
                  });
                  comm.add_algorithm("throws", [](const PlanRequest&) -> Schedule {
                    throw std::runtime_error("no idea");
                  });
                  refused("'throws' cannot plan barrier for rank 0 of 2: no idea",
                          [&] { comm.barrier(by("throws")); });
                  comm.add_algorithm("other", [](PlanRequest request) {
                    request.what = Collective::barrier;
                    return star(request);
                  });
                  refused("it planned barrier for rank 0 of 2",
                          [&] { comm.all_reduce(std::span(data), Op::sum, by("other")); });
                  comm.all_reduce(std::span(data), Op::sum, by("star"));
                  EXPECT_THAT(data, AllAre(2.0F));
                }),
      Each(IsEmpty()));
}

// Each stripe has 4096 channels of its own, numbered from the stripe's first. An algorithm that
// uses a higher channel has only one stripe.
TEST_P(OwnAlgorithm, OnHighChannelsServesLargeCallsThatThreadsWouldShare) {
  Config config = this->config();
  config.threads = 2;
  EXPECT_THAT(run_ranks(2, config,
                        [](Communicator& comm) {
                          for (const int channel : {4095, 4096, 32767}) {
                            const std::string name = "on_" + std::to_string(channel);
                            comm.add_algorithm(name, [channel](const PlanRequest& request) {
                              ScheduleBuilder plan(request, 1);
                              const Verbs lane = plan.lane(channel, channel);
                              lane.send(0, {1 - request.rank});
                              lane.reduce_copy(in_rank_order(request, 0), 0).completes();
                              return std::move(plan).finish();
                            });
                            std::vector<float> data(4 << 20, static_cast<float>(comm.rank() + 1));
                            comm.all_reduce(std::span(data), Op::sum, by(name));
                            EXPECT_EQ(data, std::vector<float>(data.size(), 3)) << name;
                            // This call is shared by threads, and uses the same channels.
                            comm.all_reduce(std::span(data));
                            EXPECT_EQ(data, std::vector<float>(data.size(), 6)) << name;
                          }
                        }),
              Each(IsEmpty()));
}

TEST(OwnAlgorithms, AStepThatIsWiderThanMessagesCanBeIsUnavailable) {
  Config config = quick_config();
  config.message_bytes = 4096;
  EXPECT_THAT(
      run_ranks(2, config,
                [](Communicator& comm) {
                  constexpr int kChunks = 65;
                  comm.add_algorithm("wide", [](const PlanRequest& request) {
                    ScheduleBuilder plan(request, kChunks);
                    const Verbs lane = plan.lane();
                    if (request.rank == request.root)
                      lane.copy_send({0, kChunks}, {1 - request.root});
                    else
                      lane.receive(request.root, {0, kChunks});
                    return std::move(plan).finish(kChunks);
                  });
                  std::vector<float> data(8, 1);
                  EXPECT_THAT(
                      outcome_of([&] { comm.broadcast(std::span(data), 1, by("wide")); }),
                      AllOf(StartsWith("unavailable: "), HasSubstr("moves 65 chunks in one step"),
                            HasSubstr("messages of 4096 bytes hold 64")));
                  comm.barrier();
                }),
      Each(IsEmpty()));
}

}  // namespace
}  // namespace tutti::test
