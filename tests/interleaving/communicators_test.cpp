// Several threads use the communicators of several ranks at once: splits, asynchronous calls,
// waits, callbacks, and the ends of communicators and runtimes.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/tutti.hpp>

#include "common/sync.h"
#include "tests/interleaving/explore.h"
#include "tests/interleaving/world.h"

namespace tutti::interleaving {
namespace {

// Registers the communicators with the background threads by a call that has ended.
void call_asynchronously(Scheduler& scheduler, std::vector<Member>& members) {
  const Scheduler::Calm calm(scheduler);
  on_each(members, [&](Communicator& each) { each.barrier_async().wait(); });
}

// Begins a sum over each of the two communicators in the group.
void sum_in_group(Group& group, Communicator& first, Communicator& second, std::span<int> sums) {
  CallOptions in_group;
  in_group.group = &group;
  first.all_reduce(sums.subspan(0, 1), Op::sum, in_group);
  second.all_reduce(sums.subspan(1, 1), Op::sum, in_group);
}

// Lets the background threads come close to their sleep, before which they yield fifty times.
void dawdle(Scheduler& scheduler) {
  for (std::size_t left = 40 + scheduler.draw(40); left > 0; --left) sync::yield();
}

class Communicators : public testing::TestWithParam<World> {};

// Threads that duplicate sibling communicators at once get communicators that are not mixed up.
TEST_P(Communicators, ThatAreSiblingsAreDuplicatedByThreadsAtOnce) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> first = make_members(scheduler, 2, GetParam());
        std::vector<Member> second = duplicates(scheduler, first);
        const auto use = [&](Member& sibling) {
          Communicator made = sibling->dup();
          check_sum(scheduler, made);
          check_sum(scheduler, *sibling);
        };
        together({[&] { use(first[0]); }, [&] { use(second[0]); }, [&] { use(first[1]); },
                  [&] { use(second[1]); }});
      },
      seeds_over(GetParam(), 200));
}

TEST_P(Communicators, ThatAreSiblingsAreSplitByThreadsAtOnce) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> first = make_members(scheduler, 3, GetParam());
        std::vector<Member> second = duplicates(scheduler, first);
        const auto use = [&](Member& sibling, int alone) {
          const int color = sibling->rank() == alone ? 1 : 0;
          std::optional<Communicator> made = sibling->split(color);
          scheduler.check(made->size() == (color == 1 ? 1 : 2), "a part has another size");
          check_sum(scheduler, *made);
        };
        std::vector<std::function<void()>> bodies;
        for (std::size_t rank = 0; rank < 3; ++rank) {
          bodies.push_back([&, rank] { use(first[rank], 0); });
          bodies.push_back([&, rank] { use(second[rank], 2); });
        }
        together(bodies);
      },
      seeds_over(GetParam(), 100));
}

// Nobody waits for the operations but the background threads, which fall asleep meanwhile.
TEST_P(Communicators, AreWokenByAnOperationThatIsQueuedWhileTheBackgroundThreadFallsAsleep) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> members = make_members(scheduler, 2, GetParam());
        on_each(members, [&](Communicator& each) {
          for (int turn = 0; turn < 2; ++turn) {
            std::array<int, 1> sum{1};
            const auto ended = std::make_shared<Event>();
            dawdle(scheduler);
            each.all_reduce_async(std::span<int>(sum)).then([&, ended](const Error* error) {
              scheduler.check(error == nullptr, "the sum failed");
              ended->happen();
            });
            ended->wait();
            scheduler.check(sum[0] == 2, "a sum is wrong");
          }
        });
      },
      seeds_over(GetParam(), 400));
}

// The background thread falls asleep over a receive of one communicator while another queues a
// call.
TEST_P(Communicators, AreWokenByAnOperationThatIsQueuedBesideOneOfASibling) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> first = make_members(scheduler, 2, GetParam());
        std::vector<Member> second = duplicates(scheduler, first);
        call_asynchronously(scheduler, second);
        on_each(first, [&](Communicator& each) {
          const int peer = 1 - each.rank();
          int received = 0;
          const auto arrived = std::make_shared<Event>();
          each.recv_async(&received, 1, DataType::int32, peer, 0).then([arrived](const Error*) {
            arrived->happen();
          });
          {
            std::array<int, 1> sum{1};
            const auto ended = std::make_shared<Event>();
            dawdle(scheduler);
            second[each.rank()]->all_reduce_async(std::span<int>(sum)).then([ended](const Error*) {
              ended->happen();
            });
            ended->wait();
            scheduler.check(sum[0] == 2, "a sum is wrong");
          }
          // A message of the first communicator would wake the peer, so none is sent before it has
          // come.
          check_sum(scheduler, *second[each.rank()]);
          const int sent = 5;
          Work work = each.send_async(&sent, 1, DataType::int32, peer, 0);
          arrived->wait();
          work.wait();
          scheduler.check(received == 5, "a message is wrong");
        });
      },
      seeds_over(GetParam(), 300));
}

// Here the peer calls late, so that nothing has arrived when the background thread looks for the
// last time before it sleeps.
TEST_P(Communicators, AreWokenByAnOperationThatIsQueuedBesideOneOfASiblingBeforeItsPeerCalls) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> first = make_members(scheduler, 2, GetParam());
        std::vector<Member> second = duplicates(scheduler, first);
        call_asynchronously(scheduler, second);
        const auto queued = std::make_shared<Event>(), ended = std::make_shared<Event>();
        std::array<int, 2> sums{1, 1};
        int received = 0;
        const auto early = [&] {
          const auto arrived = std::make_shared<Event>();
          first[0]->recv_async(&received, 1, DataType::int32, 1, 0).then([arrived](const Error*) {
            arrived->happen();
          });
          dawdle(scheduler);
          second[0]->all_reduce_async(std::span(&sums[0], 1)).then([ended](const Error*) {
            ended->happen();
          });
          queued->happen();
          ended->wait();
          arrived->wait();
        };
        const auto late = [&] {
          queued->wait();
          dawdle(scheduler);
          second[1]->all_reduce(std::span(&sums[1], 1));
          ended->wait();
          const int sent = 5;
          first[1]->send(&sent, 1, DataType::int32, 0, 0);
        };
        together({early, late});
        scheduler.check(sums == std::array{2, 2} && received == 5, "a result is wrong");
      },
      seeds_over(GetParam(), 300));
}

TEST_P(Communicators, AreWokenByATransferThatIsQueuedWhileTheBackgroundThreadFallsAsleep) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> members = make_members(scheduler, 2, GetParam());
        on_each(members, [&](Communicator& each) {
          for (int turn = 0; turn < 2; ++turn) {
            int value = each.rank() == 0 ? 7 : 0;
            const auto ended = std::make_shared<Event>();
            Work work = each.rank() == 0 ? each.send_async(&value, 1, DataType::int32, 1, turn)
                                         : each.recv_async(&value, 1, DataType::int32, 0, turn);
            work.then([&, ended](const Error*) { ended->happen(); });
            ended->wait();
            scheduler.check(value == 7, "a value is wrong");
          }
        });
      },
      seeds_over(GetParam(), 300));
}

// The background thread runs the callback, and registers the other communicator there.
TEST_P(Communicators, StartTheirFirstOperationInACallbackOfAnother) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> first = make_members(scheduler, 2, GetParam());
        std::vector<Member> second = duplicates(scheduler, first);
        on_each(first, [&](Communicator& each) {
          Communicator& other = *second[each.rank()];
          std::array<int, 1> sum{1}, sum_of_other{2};
          const auto ended = std::make_shared<Event>();
          each.all_reduce_async(std::span<int>(sum)).then([&, ended](const Error*) {
            other.all_reduce_async(std::span<int>(sum_of_other)).then([&, ended](const Error*) {
              ended->happen();
            });
          });
          ended->wait();
          scheduler.check(sum[0] == 2 && sum_of_other[0] == 4, "a sum is wrong");
        });
      },
      seeds_over(GetParam(), 300));
}

// A Work outlives its communicator, and its wait() uses the communicator only as long as there is
// one.
TEST_P(Communicators, AreDestroyedWhileAnotherThreadWaitsForTheirOperation) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> members = make_members(scheduler, 2, GetParam());
        std::array<int, 2> sums{1, 1};
        std::vector<Work> works;
        for (std::size_t rank = 0; rank < 2; ++rank)
          works.push_back(members[rank]->all_reduce_async(std::span(&sums[rank], 1)));
        together({[&] { works[0].wait(); }, [&] { members[0].reset(); }, [&] { works[1].wait(); },
                  [&] { members[1].reset(); }});
        scheduler.check(sums[0] == 2 && sums[1] == 2, "a sum is wrong");
      },
      seeds_over(GetParam(), 300));
}

// Its destructor ends the runtime and joins the background thread, with operations queued.
TEST_P(Communicators, EndTheirRuntimeBesideOperationsThatAreQueued) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> members = make_members(scheduler, 2, GetParam());
        std::array<int, 4> sums{1, 1, 1, 1};
        const auto use = [&](std::size_t rank) {
          Work one = members[rank]->all_reduce_async(std::span(&sums[rank], 1));
          Work two = members[rank]->all_reduce_async(std::span(&sums[rank + 2], 1));
          members[rank].reset();
          one.wait();
          two.wait();
        };
        together({[&] { use(0); }, [&] { use(1); }});
        scheduler.check(sums == std::array{2, 2, 2, 2}, "a sum is wrong");
      },
      seeds_over(GetParam(), 300));
}

// The callback of a group destroys the communicators, in whatever thread it runs.
TEST_P(Communicators, AreDestroyedByTheCallbackOfTheirGroup) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> first = make_members(scheduler, 2, GetParam());
        std::vector<Member> second = duplicates(scheduler, first);
        const auto use = [&](std::size_t rank) {
          std::array<int, 2> sums{1, 2};
          const auto ended = std::make_shared<Event>();
          {
            Group group;
            sum_in_group(group, *first[rank], *second[rank], sums);
            group.end_async().then([&, rank, ended](const Error* error) {
              scheduler.check(error == nullptr, "the group failed");
              first[rank].reset();
              second[rank].reset();
              ended->happen();
            });
          }
          ended->wait();
          scheduler.check(sums == std::array{2, 4}, "a sum is wrong");
        };
        together({[&] { use(0); }, [&] { use(1); }});
      },
      seeds_over(GetParam(), 300));
}

// The last call of the group ends in the thread that waits for a call behind it; the thread that
// waits for the group destroys the communicator to which the group belongs meanwhile.
TEST_P(Communicators, AreDestroyedWhenTheirGroupHasEndedInAnotherThread) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> first = make_members(scheduler, 2, GetParam());
        std::vector<Member> second = duplicates(scheduler, first);
        const auto use = [&](std::size_t rank) {
          std::array<int, 3> sums{1, 2, 3};
          Group group;
          sum_in_group(group, *first[rank], *second[rank], sums);
          Work whole = group.end_async();
          Work another = second[rank]->all_reduce_async(std::span(&sums[2], 1));
          together({[&] {
                      whole.wait();
                      first[rank].reset();
                    },
                    [&] { another.wait(); }});
          scheduler.check(sums == std::array{2, 4, 6}, "a sum is wrong");
        };
        together({[&] { use(0); }, [&] { use(1); }});
      },
      seeds_over(GetParam(), 150));
}

// The thread that destroys the communicator sleeps until the callback of its group has returned,
// and is woken by the last steps of the thread that ran it.
TEST_P(Communicators, AreDestroyedWhenTheirGroupEndsItsCallbackInAnotherThread) {
  explore(
      [](Scheduler& scheduler) {
        std::vector<Member> first = make_members(scheduler, 2, GetParam());
        std::vector<Member> second = duplicates(scheduler, first);
        const auto use = [&](std::size_t rank) {
          std::array<int, 3> sums{1, 2, 3};
          const auto ending = std::make_shared<Event>();
          {
            Group group;
            sum_in_group(group, *first[rank], *second[rank], sums);
            group.end_async().then([&, ending](const Error*) {
              ending->happen();
              dawdle(scheduler);
              dawdle(scheduler);
            });
          }
          Work another = second[rank]->all_reduce_async(std::span(&sums[2], 1));
          together({[&] {
                      ending->wait();
                      first[rank].reset();
                    },
                    [&] { another.wait(); }});
          scheduler.check(sums == std::array{2, 4, 6}, "a sum is wrong");
        };
        together({[&] { use(0); }, [&] { use(1); }});
      },
      seeds_over(GetParam(), 150));
}

INSTANTIATE_TEST_SUITE_P(Over, Communicators, testing::ValuesIn(kWorlds),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace tutti::interleaving
