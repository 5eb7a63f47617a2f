// One thread aborts a communicator while others are in its calls: all of them end with an error.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "tests/interleaving/explore.h"
#include "tests/interleaving/world.h"

namespace tutti::interleaving {
namespace {

class Abort : public testing::TestWithParam<World> {
 protected:
  // Rank 0 makes `call` in one thread and aborts in another. Rank 1 never makes the matching call:
  // it makes another one, or none.
  void ends(const std::function<void(Communicator&)>& call, std::uint64_t seeds) {
    explore(
        [&](Scheduler& scheduler) {
          std::vector<Member> members = make_members(scheduler, 2, GetParam());
          const auto expect_lost = [&](Communicator& each, const auto& made) {
            const auto kind = error_of([&] { made(each); });
            scheduler.check(kind == ErrorKind::peer_lost, "the call did not end as aborted");
          };
          const auto receive = [](Communicator& each) {
            int value = 0;
            each.recv(&value, 1, DataType::int32, 0, 5);
          };
          together({[&] { expect_lost(*members[0], call); }, [&] { members[0]->abort("a test"); },
                    [&] {
                      if (scheduler.draw(2) == 0) expect_lost(*members[1], receive);
                    }});
          scheduler.check(members[0]->failure().has_value(), "rank 0 has not failed");
        },
        seeds_over(GetParam(), seeds));
  }
};

TEST_P(Abort, EndsABlockingCall) {
  ends(
      [](Communicator& each) {
        std::array<int, 1> sum{1};
        each.all_reduce(std::span<int>(sum));
      },
      300);
}

TEST_P(Abort, EndsAQueuedCallAndThoseBehindIt) {
  ends(
      [](Communicator& each) {
        std::array<int, 2> sums{1, 1};
        Work one = each.all_reduce_async(std::span(&sums[0], 1));
        // The second call may be refused already. The first one uses `sums` until it has ended.
        const auto second = error_of([&] { each.all_reduce_async(std::span(&sums[1], 1)).wait(); });
        one.wait();
        if (second != ErrorKind::peer_lost) throw Error(ErrorKind::internal, "the second did not");
      },
      300);
}

TEST_P(Abort, EndsAReceive) {
  ends(
      [](Communicator& each) {
        int value = 0;
        each.recv(&value, 1, DataType::int32, 1, 3);
      },
      300);
}

TEST_P(Abort, EndsAQueuedReceiveThatNobodyWaitsFor) {
  ends(
      [](Communicator& each) {
        int value = 0;
        Work work = each.recv_async(&value, 1, DataType::int32, 1, 3);
        const auto ended = std::make_shared<sync::Atomic<int>>(0);
        work.then([ended](const Error*) {
          *ended = 1;
          ended->notify_all();
        });
        while (*ended == 0) ended->wait(0);
        work.wait();
      },
      300);
}

TEST_P(Abort, EndsASplit) {
  ends([](Communicator& each) { static_cast<void>(each.dup()); }, 200);
}

// Both ranks make the call, which ends well or as aborted.
TEST_P(Abort, LeavesNoRankInACallThatAllMake) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> members = make_members(scheduler, 2, GetParam());
        const auto call = [&](Communicator& each) {
          for (int turn = 0; turn < 3; ++turn) {
            const auto kind = error_of([&] { check_sum(scheduler, each); });
            scheduler.check(!kind || kind == ErrorKind::peer_lost, "the call ended otherwise");
          }
        };
        together({[&] { call(*members[0]); }, [&] { call(*members[1]); },
                  [&] { members[1]->abort("a test"); }});
      },
      seeds_over(GetParam(), 300));
}

INSTANTIATE_TEST_SUITE_P(Over, Abort, testing::ValuesIn(kWorlds),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace tutti::interleaving
