// The scheduler finds small faults that are known, repeats and shrinks them, and finds none where
// there is none.
#include "tests/interleaving/scheduler.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "common/sync.h"
#include "tests/interleaving/explore.h"

namespace tutti::interleaving {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kSeeds = 500;

void together(const std::vector<std::function<void()>>& bodies) {
  std::vector<sync::Thread> threads;
  for (const auto& body : bodies) threads.emplace_back(body);
  for (sync::Thread& thread : threads) thread.join();
}

Exploration explored(const Scenario& scenario, std::uint64_t seeds = kSeeds) {
  return explore(scenario, seeds, Effort());
}

// Two threads that add 1 without a read-modify-write operation.
void lost_update(Scheduler& scheduler) {
  sync::Atomic<int> sum{0};
  const auto add = [&] { sum = sum + 1; };
  together({add, add});
  scheduler.check(sum == 2, "an addition is lost");
}

TEST(Scheduler, FindsAndShrinksALostUpdate) {
  const Exploration found = explored(lost_update);
  ASSERT_TRUE(found.failure);
  EXPECT_EQ(found.failure->ending, Ending::check);
  EXPECT_THAT(found.failure->text, HasSubstr("an addition is lost"));
  EXPECT_LE(found.failure->switches.size(), 3u) << found.failure->report;
  EXPECT_THAT(found.failure->report, HasSubstr("(store), thread"));
  EXPECT_THAT(found.failure->report, HasSubstr(fmt::format("--seed={}", found.failure->seed)));
}

TEST(Scheduler, FindsNothingInACorrectCounter) {
  const Exploration found = explored([](Scheduler& scheduler) {
    sync::Atomic<int> sum{0};
    const auto add = [&] { ++sum; };
    together({add, add, add});
    scheduler.check(sum == 3, "an addition is lost");
  });
  EXPECT_FALSE(found.failure) << found.failure->report;
  EXPECT_EQ(found.seeds, kSeeds);
}

TEST(Scheduler, FindsLocksTakenInTwoOrders) {
  const Exploration found = explored([](Scheduler&) {
    sync::Mutex first, second;
    together({[&] {
                const std::lock_guard one(first);
                const std::lock_guard two(second);
              },
              [&] {
                const std::lock_guard two(second);
                const std::lock_guard one(first);
              }});
  });
  ASSERT_TRUE(found.failure);
  EXPECT_EQ(found.failure->ending, Ending::deadlock);
  EXPECT_THAT(found.failure->text, HasSubstr("waits: lock"));
}

// The waiter reads the flag and sleeps; the other thread sets it and notifies in between.
TEST(Scheduler, FindsALostWakeUp) {
  const Exploration found = explored([](Scheduler&) {
    sync::Atomic<bool> ready{false};
    sync::Atomic<int> asleep{0};
    together({[&] {
                if (ready) return;
                asleep = 1;
                asleep.wait(1);
              },
              [&] {
                ready = true;
                if (asleep == 0) return;
                asleep = 0;
                asleep.notify_all();
              }});
  });
  ASSERT_TRUE(found.failure);
  EXPECT_EQ(found.failure->ending, Ending::deadlock);
  EXPECT_THAT(found.failure->text, HasSubstr("waits: wait of an atomic"));
}

TEST(Scheduler, RepeatsARunExactly) {
  for (const Policy policy : {Policy::random, Policy::priorities})
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      RunPlan plan;
      plan.policy = policy;
      plan.seed = seed;
      plan.usual_steps = 40;
      const Outcome first = run_once(lost_update, plan), second = run_once(lost_update, plan);
      EXPECT_EQ(first.hash, second.hash);
      EXPECT_EQ(first.ending, second.ending);
      EXPECT_EQ(first.switches, second.switches);
      plan.policy = Policy::calm;
      plan.follow = &first.switches;
      EXPECT_EQ(run_once(lost_update, plan).hash, first.hash) << "the switches are the whole run";
    }
}

TEST(Scheduler, SeedsGiveDifferentRuns) {
  RunPlan plan;
  plan.policy = Policy::random;
  std::vector<std::uint64_t> hashes;
  for (plan.seed = 1; plan.seed <= 30; ++plan.seed)
    hashes.push_back(run_once(lost_update, plan).hash);
  std::sort(hashes.begin(), hashes.end());
  EXPECT_GT(std::unique(hashes.begin(), hashes.end()) - hashes.begin(), 5);
}

TEST(Scheduler, EndsThreadsThatTakeTurnsForEver) {
  const Exploration found = explored([](Scheduler&) {
    sync::Atomic<bool> never{false};
    together({[&] {
      while (!never) sync::yield();
    }});
  });
  ASSERT_TRUE(found.failure);
  EXPECT_EQ(found.failure->ending, Ending::step_limit);
}

// A thread that polls without a pause does not keep the one for which it waits from going on.
TEST(Scheduler, LetsOthersGoOnWhileAThreadPolls) {
  const Exploration found = explored(
      [](Scheduler&) {
        sync::Atomic<bool> done{false};
        together({[&] {
                    while (!done) continue;
                  },
                  [&] { done = true; }});
      },
      100);
  EXPECT_FALSE(found.failure) << found.failure->report;
}

TEST(Scheduler, ReportsAnException) {
  const Exploration found =
      explored([](Scheduler&) { throw std::runtime_error("thrown by the body"); });
  ASSERT_TRUE(found.failure);
  EXPECT_EQ(found.failure->ending, Ending::exception);
  EXPECT_THAT(found.failure->text, HasSubstr("thrown by the body"));
}

// One thread deletes what another reads, unless it has seen that the other is through.
TEST(Scheduler, ReportsACrashWithItsSchedule) {
  const Exploration found = explored([](Scheduler&) {
    auto shared = std::make_unique<sync::Atomic<int>>(1);
    sync::Atomic<sync::Atomic<int>*> pointer{shared.get()};
    together({[&] {
                if (sync::Atomic<int>* const seen = pointer) seen->store(2);
              },
              [&] {
                pointer = nullptr;
                if (shared->load() == 1) shared.reset();
              }});
  });
  ASSERT_TRUE(found.failure);
  EXPECT_EQ(found.failure->ending, Ending::running) << "that of a process that crashed";
  EXPECT_THAT(found.failure->report, HasSubstr("heap-use-after-free"));
  EXPECT_LE(found.failure->switches.size(), 4u) << found.failure->report;
}

TEST(Scheduler, AdvancesTimeWhenAllThreadsSleep) {
  const Exploration found = explored(
      [](Scheduler& scheduler) {
        const TimePoint begin = scheduler.read_clock();
        sync::sleep_for(std::chrono::milliseconds(700));
        scheduler.check(scheduler.read_clock() - begin >= std::chrono::milliseconds(700),
                        "the sleep was too short");
        sync::Mutex mutex;
        sync::Condition never;
        std::unique_lock lock(mutex);
        const TimePoint deadline = scheduler.read_clock() + std::chrono::seconds(1);
        scheduler.check(!never.wait_until(lock, deadline, [] { return false; }), "it became true");
        scheduler.check(scheduler.read_clock() >= deadline, "the wait ended early");
      },
      20);
  EXPECT_FALSE(found.failure) << found.failure->report;
}

TEST(Scheduler, TakesALongSleepForALostWakeUp) {
  const Exploration found =
      explored([](Scheduler&) { sync::sleep_for(std::chrono::seconds(100)); }, 1);
  ASSERT_TRUE(found.failure);
  EXPECT_EQ(found.failure->ending, Ending::deadlock);
  EXPECT_THAT(found.failure->text, HasSubstr("waits: sleep, for 100000 ms more"));
}

TEST(Scheduler, WakesAThreadThatWaitsForADescriptor) {
  const Exploration found = explored([](Scheduler&) {
    const int bell = eventfd(0, EFD_NONBLOCK), epoll = epoll_create1(0);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    epoll_ctl(epoll, EPOLL_CTL_ADD, bell, &event);
    together({[&] { sync::await_event(epoll, std::chrono::hours(1)); },
              [&] { sync::signal_event(bell); }});
    close(epoll);
    close(bell);
  });
  EXPECT_FALSE(found.failure) << found.failure->report;
}

TEST(Scheduler, WakesThreadsThatWaitForACondition) {
  const Exploration found = explored([](Scheduler& scheduler) {
    sync::Mutex mutex;
    sync::Condition changed;
    int here = 0;
    const auto meet = [&] {
      std::unique_lock lock(mutex);
      if (++here == 3) changed.notify_all();
      scheduler.check(changed.wait_until(lock, TimePoint::max(), [&] { return here == 3; }), "");
    };
    together({meet, meet, meet});
  });
  EXPECT_FALSE(found.failure) << found.failure->report;
}

TEST(Scheduler, WaitsForThreadsThatWereDetached) {
  const Exploration found = explored([](Scheduler&) {
    const auto ended = std::make_shared<sync::Atomic<int>>(0);
    for (int i = 0; i < 3; ++i) sync::Thread([ended] { ++*ended; }).detach();
  });
  EXPECT_FALSE(found.failure) << found.failure->report;
  EXPECT_GE(found.steps, 9 * kSeeds);
}

}  // namespace
}  // namespace tutti::interleaving
