// Breaks good schedules at random, from a seed. The verifier must reach a verdict on each of them,
// and those that it accepts must compute the right numbers, whatever the order of the lanes.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>

#include "common/random.h"
#include "interpreter.h"
#include "support.h"

namespace tutti::testing {
namespace {

using Schedules = std::vector<Schedule>;

class Mutator {
 public:
  Mutator(Schedules& schedules, std::uint64_t seed) : schedules_(schedules), random_(seed) {}

  /// Breaks one thing, and returns a description of it.
  std::string mutate() {
    Schedule& schedule = schedules_[below(schedules_.size())];
    if (schedule.lanes.empty()) return "nothing";
    const std::string rank = "rank " + std::to_string(schedule.rank) + ": ";
    if (below(8) == 0) return rank + mutate_schedule(schedule);
    Lane& lane = schedule.lanes[below(schedule.lanes.size())];
    const std::string place = rank + "lane " + std::to_string(&lane - schedule.lanes.data()) + ": ";
    if (lane.steps.empty() || below(4) == 0) return place + mutate_lane(schedule, lane);
    return place + mutate_step(schedule, lane.steps[below(lane.steps.size())]);
  }

 private:
  std::size_t below(std::size_t limit) { return random_.next() % limit; }

  /// Returns a number that is usually plausible and sometimes impossible.
  int number(int limit) {
    static constexpr int kOdd[] = {-1, INT_MAX, INT_MIN, 1 << 20};
    if (below(16) == 0) return kOdd[below(4)];
    return static_cast<int>(below(std::clamp(limit, 0, 64) + 1));  // `limit` may already be broken
  }

  std::string mutate_schedule(Schedule& schedule) {
    switch (below(7)) {
      case 0: schedule.widest = number(schedule.ranks); return "widest";
      case 1: schedule.chunks = number(schedule.ranks); return "chunks";
      case 2: schedule.scratch_chunks = number(schedule.ranks); return "scratch chunks";
      case 3: schedule.root = number(schedule.ranks); return "root";
      case 4: std::swap(schedule, schedules_[below(schedules_.size())]); return "swap ranks";
      case 5:
        schedule.lanes.erase(schedule.lanes.begin() + below(schedule.lanes.size()));
        return "drop lane";
      default: schedule.rank = number(schedule.ranks); return "rank";
    }
  }

  std::string mutate_lane(Schedule& schedule, Lane& lane) {
    const int channels = static_cast<int>(schedule.lanes.size());
    switch (lane.steps.empty() ? 0 : below(6)) {
      case 0: lane.receives_on = number(channels); return "receive channel";
      case 1: lane.sends_on = number(channels); return "send channel";
      case 2: lane.steps.erase(lane.steps.begin() + below(lane.steps.size())); return "drop step";
      case 3:
        std::swap(lane.steps[below(lane.steps.size())], lane.steps[below(lane.steps.size())]);
        return "swap steps";
      case 4: {
        Lane& other = schedule.lanes[below(schedule.lanes.size())];
        other.steps.push_back(lane.steps[below(lane.steps.size())]);
        return "double step";
      }
      // Moves the last step of a lane to the end of a random one; the meaning is often the same.
      default: {
        Lane& other = schedule.lanes[below(schedule.lanes.size())];
        other.steps.push_back(lane.steps.back());
        lane.steps.pop_back();
        return "move step";
      }
    }
  }

  std::string mutate_step(const Schedule& schedule, Step& step) {
    auto& list = below(2) == 0 ? step.in : step.out;
    switch (below(9)) {
      case 0: step.chunk = number(schedule.chunks); return "chunk";
      case 1: step.count = number(schedule.chunks); return "count";
      case 2: step.completes = !step.completes; return "completes";
      case 3: step.after = {}; return "drop after";
      case 4:
        step.after = {number(static_cast<int>(schedule.lanes.size())), number(2), number(2)};
        return "after";
      case 5:
        if (!list.empty()) list.erase(list.begin() + below(list.size()));
        return "drop operand";
      case 6:
        if (!list.empty()) std::swap(list[below(list.size())], list[below(list.size())]);
        return "swap operands";
      case 7:
        list.push_back({static_cast<Place>(below(4)), number(schedule.ranks)});
        return "add operand";
      default:
        if (!list.empty()) {
          Operand& operand = list[below(list.size())];
          (below(2) == 0 ? operand.index : step.chunk) = number(schedule.ranks);
          if (below(4) == 0) operand.place = static_cast<Place>(below(4));
        }
        return "operand";
    }
  }

  Schedules& schedules_;
  SeededRandom random_;
};

struct Tally {
  int accepted = 0;
  int changed_and_accepted = 0;
  int rejected = 0;
};

/// Plans a schedule from the seed, breaks it, asks the verifier, and runs it if the verifier
/// accepts it.
void try_seed(std::uint64_t seed, Tally& tally) {
  SeededRandom random(seed);
  const Algorithm& algorithm = algorithms()[random.next() % algorithms().size()];
  const auto what = static_cast<Collective>(random.next() % kCollectives);
  const int ranks = 2 + static_cast<int>(random.next() % 8);
  if (!algorithm.knows(what, ranks)) return;
  const int root = collectives::has_root(what) ? static_cast<int>(random.next() % ranks) : 0;
  const Schedules good = plan_all(algorithm, what, ranks, root);
  Schedules schedules = good;
  Mutator mutator(schedules, random.next());
  std::string changes;
  const std::uint64_t mutations = 1 + random.next() % 3;
  for (std::uint64_t i = 0; i < mutations; ++i) changes += mutator.mutate() + "; ";

  const bool in_place = random.next() % 2 == 0;
  const Verdict verdict = verify(schedules, {.in_place = in_place});
  EXPECT_EQ(verdict.ok, verdict.why.empty());
  ++(verdict.ok ? tally.accepted : tally.rejected);
  if (!verdict.ok) return;
  tally.changed_and_accepted += schedules != good;
  for (int run = 0; run < 8; ++run) {
    const InterpretOptions options{
        .count = what == Collective::barrier ? 0 : static_cast<int>(random.next() % 50),
        .message_elements = schedules[0].widest * (1 + static_cast<int>(random.next() % 3)),
        .in_place = in_place,
        .seed = random.next()};
    ASSERT_EQ(interpret(schedules, options), "")
        << "accepted, but wrong: seed " << seed << ", " << algorithm.name << " " << to_string(what)
        << " of " << ranks << " ranks, root " << root << (in_place ? ", in place; " : "; ")
        << changes;
  }
}

TEST(VerifyFuzz, WhatIsAcceptedComputesTheRightNumbersAndTheRestIsRejectedWithAReason) {
  constexpr std::uint64_t kSeeds = 20'000;
  Tally tally;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
    ASSERT_NO_FATAL_FAILURE(try_seed(seed, tally));
  // The test is only meaningful if the verifier rejected some schedules and accepted some broken
  // ones.
  EXPECT_GT(tally.rejected, int(kSeeds / 4));
  EXPECT_GT(tally.changed_and_accepted, int(kSeeds / 100));
  RecordProperty("rejected", tally.rejected);
  RecordProperty("accepted", tally.accepted);
  RecordProperty("changed_and_accepted", tally.changed_and_accepted);
}

}  // namespace
}  // namespace tutti::testing
