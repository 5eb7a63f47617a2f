// Blocking and asynchronous calls, sends and receives of the same communicators in several threads.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "tests/interleaving/explore.h"
#include "tests/interleaving/world.h"

namespace tutti::interleaving {
namespace {

class Mixed : public testing::TestWithParam<World> {};

// The engine passes from the background thread to the calling thread and back.
TEST_P(Mixed, BlockingCallsTakeTurnsWithAsynchronousOnes) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> members = make_members(scheduler, 2, GetParam());
        on_each(members, [&](Communicator& each) {
          std::array<int, 3> sums{1, 2, 3};
          Work one = each.all_reduce_async(std::span(&sums[0], 1));
          check_sum(scheduler, each);
          Work two = each.all_reduce_async(std::span(&sums[1], 1));
          two.wait();
          check_sum(scheduler, each);
          Work three = each.all_reduce_async(std::span(&sums[2], 1));
          one.wait();
          three.wait();
          check_sum(scheduler, each);
          scheduler.check(sums == std::array{2, 4, 6}, "a sum is wrong");
        });
      },
      seeds_over(GetParam(), 300));
}

TEST_P(Mixed, SeveralThreadsWaitForOneOperation) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> members = make_members(scheduler, 2, GetParam());
        on_each(members, [&](Communicator& each) {
          std::array<int, 2> sums{1, 2};
          Work one = each.all_reduce_async(std::span(&sums[0], 1));
          Work two = each.all_reduce_async(std::span(&sums[1], 1));
          together({[&] { one.wait(); }, [&] { two.wait(); }, [&] { two.wait(); }});
          scheduler.check(sums == std::array{2, 4}, "a sum is wrong");
        });
      },
      seeds_over(GetParam(), 200));
}

// Messages of several lengths, the longest of which do not fit into one message of a channel.
TEST_P(Mixed, TransfersCrossBesideACollective) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> members = make_members(scheduler, 2, GetParam());
        on_each(members, [&](Communicator& each) {
          const int peer = 1 - each.rank();
          std::vector<std::vector<int>> sent, received;
          std::vector<Work> works;
          for (const std::size_t count : {1u, 100u, 700u}) {
            sent.emplace_back(count, each.rank() + 1);
            received.emplace_back(count, 0);
          }
          for (int tag = 2; tag >= 0; --tag)
            works.push_back(each.recv_async(received[tag].data(), received[tag].size(),
                                            DataType::int32, peer, tag));
          std::array<int, 1> sum{1};
          works.push_back(each.all_reduce_async(std::span<int>(sum)));
          for (int tag = 0; tag < 3; ++tag)
            works.push_back(
                each.send_async(sent[tag].data(), sent[tag].size(), DataType::int32, peer, tag));
          for (Work& work : works) work.wait();
          for (const auto& each_received : received)
            for (const int value : each_received)
              scheduler.check(value == peer + 1, "a message is wrong");
          scheduler.check(sum[0] == 2, "a sum is wrong");
        });
      },
      seeds_over(GetParam(), 200));
}

// Threads of a rank use sibling communicators, which share a doorbell and connections.
TEST_P(Mixed, SiblingsAreUsedByThreadsAndEndAtDifferentTimes) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> first = make_members(scheduler, 2, GetParam());
        std::vector<Member> second = duplicates(scheduler, first);
        const auto use = [&](Member& member, int turns) {
          for (int turn = 0; turn < turns; ++turn) {
            check_sum(scheduler, *member);
            int value = turn;
            if (member->rank() == 0)
              member->send(&value, 1, DataType::int32, 1, 0);
            else
              member->recv(&value, 1, DataType::int32, 0, 0);
            scheduler.check(value == turn, "a message is wrong");
          }
          member.reset();
        };
        together({[&] { use(first[0], 1); }, [&] { use(second[0], 2); }, [&] { use(first[1], 1); },
                  [&] { use(second[1], 2); }});
      },
      seeds_over(GetParam(), 200));
}

TEST_P(Mixed, AWaitWithALimitEndsWhenItHasPassedInTheTimeOfTheRuntime) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> members = make_members(scheduler, 2, GetParam());
        int value = 0;
        Work work = members[0]->recv_async(&value, 1, DataType::int32, 1, 0);
        const TimePoint begin = scheduler.read_clock();
        const auto ended = error_of([&] { work.wait(std::chrono::milliseconds(500)); });
        scheduler.check(ended == ErrorKind::timeout, "the wait did not end by its limit");
        scheduler.check(scheduler.read_clock() - begin >= std::chrono::milliseconds(500),
                        "the wait ended early");
        const int sent = 5;
        members[1]->send(&sent, 1, DataType::int32, 0, 0);
        work.wait();
        scheduler.check(value == 5, "a message is wrong");
      },
      seeds_over(GetParam(), 100));
}

INSTANTIATE_TEST_SUITE_P(Over, Mixed, testing::ValuesIn(kWorlds),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace tutti::interleaving
