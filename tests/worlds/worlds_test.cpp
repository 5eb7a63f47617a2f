// Tests that worlds of ranks drawn from seeds do what the reference model says, and that the model
// and the tools around it can be trusted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "ground.h"
#include "model.h"
#include "runtime/communicator_impl.h"
#include "runtime/membership/split.h"
#include "world.h"

namespace tutti::worlds {
namespace {

// Says how many seeds are run over a transport, and which is the first.
struct Share {
  const char* transport;
  std::uint64_t seeds, first = 0;
};
std::ostream& operator<<(std::ostream& out, const Share& share) {
  return out << share.transport << " from " << share.first;
}

class Worlds : public testing::TestWithParam<Share> {};

TEST_P(Worlds, EveryCallOfEverySeedEndsAsTheModelSays) {
  const auto& [transport, seeds, first] = GetParam();
  std::uint64_t calls = 0, errors = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const Outcome outcome = run(plan_of(seed, transport));
    calls += outcome.calls;
    errors += outcome.errors;
    if (outcome.wrong.empty()) continue;
    const Plan least = shrunk(plan_of(seed, transport));
    FAIL() << outcome.wrong << "\nreplay: worlds --seed " << seed << " --transport " << transport
           << "\nthe smallest world that was found to fail:\n"
           << describe(least) << run(least).wrong;
  }
  EXPECT_GT(calls, 20 * seeds);
  EXPECT_GT(errors, seeds / 2) << "worlds without errors show little";
}

INSTANTIATE_TEST_SUITE_P(Transports, Worlds,
                         testing::Values(Share{"local", 1000}, Share{"faulty_local", 1500},
                                         Share{"stream", 25}, Share{"faulty_stream", 12},
                                         Share{"shm", 100}, Share{"faulty_shm", 100},
                                         Share{"tcp", 30}, Share{"faulty_tcp", 40},
                                         Share{"verbs", 60}, Share{"faulty_verbs", 40}),
                         [](const auto& param) { return std::string(param.param.transport); });

// With these there are ten thousand worlds, in about 40 s. Sanitizers leave them out.
INSTANTIATE_TEST_SUITE_P(More, Worlds,
                         testing::Values(Share{"local", 1500, 1000}, Share{"local", 1500, 2500},
                                         Share{"faulty_local", 1400, 1500},
                                         Share{"faulty_local", 1400, 2900},
                                         Share{"faulty_local", 1400, 4300}),
                         [](const auto& param) {
                           return fmt::format("{}_from_{}", param.param.transport,
                                              param.param.first);
                         });

// These worlds failed once. A cut took what had been sent before an end that was known; a split
// failed although its member had made its part before it ended; and a member gave up its part
// without telling those who had joined it.
TEST(Worlds, SeedsThatHaveFailedDoWhatTheModelSays) {
  const std::pair<const char*, std::uint64_t> failed[] = {{"faulty-local", 200'000'695},
                                                          {"faulty-tcp", 100'018'415},
                                                          {"faulty-shm", 200'011'732},
                                                          {"faulty-shm", 200'017'124}};
  for (const auto& [transport, seed] : failed)
    EXPECT_EQ(run(plan_of(seed, transport)).wrong, "") << transport << ", seed " << seed;
}

// The receive waited to its deadline, since any rank could still have sent such a message.
TEST(Worlds, AMemberThatGivesUpItsPartOfASplitTellsThoseWhoHaveJoinedIt) {
  Plan plan;
  plan.transport = "local";
  plan.timeout = std::chrono::seconds(2);
  Ground ground(plan);
  std::vector<Communicator> comms;
  for (CommunicatorParts& parts : ground.base(0))
    comms.push_back(CommunicatorImpl::make(std::move(parts)));
  std::deque<Splitting> splits;
  std::vector<Work> exchanges;
  for (Communicator& comm : comms) {
    Splitting& split = splits.emplace_back(CommunicatorImpl::of(comm).parts(), dup_card());
    exchanges.push_back(CommunicatorImpl::of(comm).call_async(split.exchange()));
  }
  for (Work& exchange : exchanges) exchange.wait();
  for (Splitting& split : splits) {
    ASSERT_TRUE(split.compare());
    split.make(ground.clock().now() + plan.timeout);
  }
  ASSERT_TRUE(splits[0].joined());
  Communicator part = CommunicatorImpl::make(splits[0].take_parts(ground.clock().now()));
  splits[1].give_up(Error(ErrorKind::unavailable, "there was no memory"));
  int got = 0;
  const TimePoint begun = ground.clock().now();
  try {
    part.recv(std::span(&got, 1), kAnySource, 1);
    ADD_FAILURE() << "nobody has sent anything";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_NE(std::string(error.what()).find("there was no memory"), std::string::npos);
  }
  EXPECT_LT(ground.clock().now() - begun, plan.timeout / 2);
}

// Every second message of this transport is announced, and its payload takes two calls of
// RecvChannel::get(). A receive failed with "has closed its communicator without sending it" where
// its rank looked at its peer in between.
TEST(Worlds, AMessageWhosePayloadIsOnItsWayIsReceivedAlthoughItsSenderHasClosed) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Plan plan;
    plan.seed = seed;
    plan.transport = "stream";
    plan.timeout = std::chrono::seconds(2);
    Ground ground(plan);
    std::vector<std::optional<Communicator>> comms;
    for (CommunicatorParts& parts : ground.base(0))
      comms.emplace_back(CommunicatorImpl::make(std::move(parts)));
    std::vector<int> sent(100, 7), got(100), again(100);
    std::vector<Work> received;
    for (auto* const to : {&got, &again})
      received.push_back(comms[1]->recv_async(std::span(*to), 0, to == &again ? 2 : 1));
    Work first = comms[0]->send_async(std::span(sent), 1, 1);
    Work second = comms[0]->send_async(std::span(sent), 1, 2);
    comms[0].reset();
    for (Work& work : received) EXPECT_NO_THROW(work.wait()) << "seed " << seed;
    EXPECT_EQ(again, sent);
  }
}

// It polled 5000 times before. Each poll of this transport reads the clock, which costs a
// microsecond.
TEST(Worlds, AGroupThatBlocksLetsTheOtherRanksGoOnAtOnceInARuntimeWithoutThreads) {
  Plan plan;
  plan.transport = "local";
  plan.decorated = true;
  plan.timeout = std::chrono::seconds(2);
  Ground ground(plan);
  std::vector<Communicator> comms;
  for (CommunicatorParts& parts : ground.base(0))
    comms.push_back(CommunicatorImpl::make(std::move(parts)));
  std::vector<int> ones(2, 1);
  Work other = comms[1].all_reduce_async(std::span(&ones[1], 1), Op::sum);
  Group group;
  comms[0].all_reduce(std::span(ones.data(), 1), Op::sum, {.group = &group});
  const TimePoint begun = ground.clock().now();
  group.end();
  EXPECT_LT(ground.clock().now() - begun, std::chrono::milliseconds(2));
  other.wait();
  EXPECT_EQ(ones, std::vector<int>(2, 2));
}

TEST(Worlds, TheSameSeedGivesTheSameWorldAndAnotherOneAnother) {
  const Plan plan = plan_of(7, "faulty-local");
  const Outcome first = run(plan), again = run(plan);
  EXPECT_EQ(first.calls, again.calls);
  EXPECT_EQ(first.errors, again.errors);
  EXPECT_EQ(first.ended_at, again.ended_at);
  EXPECT_EQ(describe(plan), describe(plan_of(7, "faulty-local")));
  EXPECT_NE(describe(plan), describe(plan_of(8, "faulty-local")));
}

TEST(Worlds, SmallerPlansLeaveOutRanksFaultsAndStepsWithWhatDependsOnThem) {
  Plan plan;
  plan.ranks = 5;
  plan.slots = 3;
  plan.steps = {{.what = What::split, .slot = 0, .child = 1, .colors = 2},
                {.what = What::split, .slot = 1, .child = 2, .colors = 1},
                {.what = What::collective, .slot = 2},
                {.what = What::collective, .slot = 0}};
  plan.faults.events = {{.rank = 4, .peer = 1}};
  const std::vector<Plan> less = smaller(plan);
  EXPECT_TRUE(std::any_of(less.begin(), less.end(), [](const Plan& each) {
    return each.ranks == 2 && each.faults.events.empty();
  }));
  EXPECT_TRUE(std::any_of(less.begin(), less.end(), [](const Plan& each) {
    return each.ranks == 5 && each.steps.size() == 1;
  })) << "without the first split, nothing is left of its communicators";
}

TEST(Worlds, TheModelNamesAByteThatIsWrongInTheOutputInTheInputAndInAGuard) {
  const Step step{.collective = Collective::all_reduce, .count = 4};
  const std::vector<int> members{0, 1, 2};
  Memory memory = memory_of_collective(step, members, 1);
  EXPECT_NE(memory.wrong(true), "") << "the output is not there yet";
  EXPECT_EQ(memory.wrong(false), "");
  memory.bytes = memory.after;
  EXPECT_EQ(memory.wrong(true), "");
  for (const std::size_t at : {std::size_t{0}, memory.input, memory.bytes.size() - 1}) {
    memory.bytes = memory.after;
    memory.bytes[at] ^= std::byte{1};
    EXPECT_NE(memory.wrong(true), "") << at;
    EXPECT_NE(memory.wrong(false), "") << at;
  }
}

TEST(Worlds, TheModelAllowsAnErrorOnlyWhereAFaultConcernsTheCommunicatorAndHasBegun) {
  Plan plan;
  plan.ranks = 3;
  plan.faults.events = {{.at = TimePoint(std::chrono::milliseconds(5)), .rank = 0, .peer = 2}};
  const Happened nothing;
  const TimePoint before{}, later(std::chrono::milliseconds(6));
  EXPECT_TRUE(allowed(plan, nothing, 0, 1, before).empty());
  EXPECT_EQ(allowed(plan, nothing, 0, 1, later), std::set{ErrorKind::peer_lost});
  plan.faults.events.front().peer = 3;  // not a rank of this world
  EXPECT_TRUE(allowed(plan, nothing, 0, 1, later).empty());
}

}  // namespace
}  // namespace tutti::worlds
