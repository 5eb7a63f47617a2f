// Communicators shrink, grow and agree while other threads of their ranks wait for operations, use
// siblings, abort, and end.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tutti/tutti.hpp>

#include "tests/interleaving/explore.h"
#include "tests/interleaving/renewal.h"

namespace tutti::interleaving {
namespace {

using std::chrono::hours;

// This patience does not end in a run.
constexpr auto kForEver = hours(20);

void check_whole(Scheduler& scheduler, Communicator& made, int size) {
  scheduler.check(made.size() == size, "a new communicator has another size");
  check_sum(scheduler, made);
}

// A thread waits for a call of the old communicator, in which a rank ends at any time; the others
// shrink it, and destroy it while that thread may still be in its wait.
TEST(Renewal, ARankEndsBesideACallAndTheOthersShrink) {
  explore(
      [](Scheduler& scheduler) {
        Job job(scheduler);
        std::vector<Member> members = job.start(3);
        std::array<int, 3> sums{1, 1, 1};
        const auto go_on = [&](std::size_t rank) {
          Member& member = members[rank];
          Work work = member->all_reduce_async(std::span(&sums[rank], 1));
          together({[&] { static_cast<void>(error_of([&] { work.wait(); })); },
                    [&] {
                      Communicator made = member->shrink(kForEver);
                      scheduler.check(work.done(), "a call is under way after shrink()");
                      member.reset();
                      check_whole(scheduler, made, 2);
                    }});
        };
        together({[&] { go_on(0); }, [&] { go_on(1); }, [&] { members[2].reset(); }});
      },
      300);
}

// One rank ends and another aborts meanwhile. Nobody is left waiting for one that has gone on.
TEST(Renewal, AnAbortMeetsAShrink) {
  explore(
      [](Scheduler& scheduler) {
        Job job(scheduler);
        std::vector<Member> members = job.start(3);
        const auto go_on = [&](Member& member) {
          Communicator made = member->shrink(kForEver);
          check_whole(scheduler, made, 2);
        };
        together({[&] { go_on(members[0]); }, [&] { members[0]->abort("a test"); },
                  [&] { go_on(members[1]); }, [&] { members[2].reset(); }});
      },
      300);
}

// Each rank has a thread that splits and uses a sibling of the communicator that shrinks.
TEST(Renewal, ASiblingIsUsedWhileACommunicatorShrinks) {
  explore(
      [](Scheduler& scheduler) {
        Job job(scheduler);
        std::vector<Member> first = job.start(2);
        std::vector<Member> second = duplicates(scheduler, first);
        std::vector<std::function<void()>> bodies;
        for (std::size_t rank = 0; rank < 2; ++rank) {
          bodies.push_back([&, rank] {
            Communicator made = first[rank]->shrink(kForEver);
            first[rank].reset();
            check_whole(scheduler, made, 2);
          });
          bodies.push_back([&, rank] {
            check_sum(scheduler, *second[rank]);
            Communicator part = second[rank]->dup();
            second[rank].reset();
            check_sum(scheduler, part);
          });
        }
        together(bodies);
      },
      200);
}

// The ranks have asynchronous calls of a sibling under way while they grow, and one of them ends
// the sibling in a callback.
TEST(Renewal, ANewcomerComesBesideCallsOfASibling) {
  explore(
      [](Scheduler& scheduler) {
        Job job(scheduler);
        std::vector<Member> first = job.start(2);
        std::vector<Member> second = duplicates(scheduler, first);
        std::array<int, 2> sums{1, 2};
        const auto go_on = [&](std::size_t rank) {
          Work work = second[rank]->all_reduce_async(std::span(&sums[rank], 1));
          if (rank == 1) work.then([&](const Error*) { second[1].reset(); });
          Communicator made = first[rank]->grow(1, kForEver);
          check_whole(scheduler, made, 3);
          first[rank].reset();
          work.wait();
          check_sum(scheduler, made);
        };
        together({[&] { go_on(0); }, [&] { go_on(1); },
                  [&] {
                    Communicator made = job.come();
                    check_whole(scheduler, made, 3);
                    check_sum(scheduler, made);
                  }});
        scheduler.check(sums == std::array{3, 3}, "a sum is wrong");
      },
      200);
}

// Two communicators of the same ranks grow in two threads of each, and take one newcomer each.
TEST(Renewal, TwoCommunicatorsGrowAtOnce) {
  explore(
      [](Scheduler& scheduler) {
        Job job(scheduler);
        std::vector<Member> first = job.start(2);
        std::vector<Communicator> again;
        {
          const Scheduler::Calm calm(scheduler);
          std::vector<Member> made(2);
          on_each(first, [&](Communicator& each) { made[each.rank()] = each.shrink(kForEver); });
          for (Member& each : made) again.push_back(std::move(*each));
        }
        const auto grow = [&](Communicator& whole) {
          Communicator made = whole.grow(1, kForEver);
          check_whole(scheduler, made, 3);
        };
        const auto come = [&] {
          Communicator made = job.come();
          check_whole(scheduler, made, 3);
        };
        together({[&] { grow(*first[0]); }, [&] { grow(*first[1]); }, [&] { grow(again[0]); },
                  [&] { grow(again[1]); }, come, come});
      },
      100);
}

// Nobody comes, and another thread of one rank ends the call of all.
TEST(Renewal, AnAbortEndsAGrowInVainOnAllRanks) {
  explore(
      [](Scheduler& scheduler) {
        Job job(scheduler);
        std::vector<Member> members = job.start(3);
        const auto grow = [&](Member& member) {
          const auto kind = error_of([&] { member->grow(1, kForEver); });
          scheduler.check(kind == ErrorKind::peer_lost, "a grow did not end as aborted");
        };
        together({[&] { grow(members[0]); }, [&] { grow(members[1]); }, [&] { grow(members[2]); },
                  [&] { members[1]->abort("a test"); }});
      },
      200);
}

// The flags are agreed on though a rank ends meanwhile, beside a call that may fail for it.
TEST(Renewal, FlagsAreAgreedOnBesideACallAndTheEndOfARank) {
  explore(
      [](Scheduler& scheduler) {
        Job job(scheduler);
        std::vector<Member> members = job.start(3);
        std::array<int, 3> sums{1, 1, 1};
        std::array<std::uint64_t, 2> agreed{};
        const auto go_on = [&](std::size_t rank) {
          Work work = members[rank]->all_reduce_async(std::span(&sums[rank], 1));
          agreed[rank] = members[rank]->agree(rank == 0 ? 6 : 3, kForEver).flags;
          static_cast<void>(error_of([&] { work.wait(); }));
        };
        together({[&] { go_on(0); }, [&] { go_on(1); }, [&] { members[2].reset(); }});
        scheduler.check(agreed[0] == 2 && agreed[1] == 2, "flags are wrong");
      },
      200);
}

}  // namespace
}  // namespace tutti::interleaving
