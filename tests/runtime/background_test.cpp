// Tests of the background thread, with operations that the test defines.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/runtime.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

/// Stands for a communicator in the runtime. The classes below decide what is pending.
class Fake : public Progressable {
 public:
  bool advance_pending() noexcept override { return true; }
  void look_pending() noexcept override {}
  bool pending() const noexcept override { return pending_; }
  bool awaited() const noexcept override { return false; }
  TimePoint next_deadline() const override { return TimePoint::max(); }
  Sleepers& sleepers() override { return sleepers_; }
  const Doorbell& doorbell() const override { return bell_; }
  std::span<const int> wait_fds() const override { return {}; }
  void arm() override {}
  void disarm() noexcept override {}
  void background_progress() noexcept override {}

 protected:
  mutable std::atomic<bool> pending_{false};
  Sleepers sleepers_;
  Doorbell bell_;
};

/// It is pending until end() is called. It knows what the background thread is doing: after the
/// thread has advanced it, the thread asks whether it is still pending, and asks a second time only
/// before it sleeps.
class Busy final : public Fake {
 public:
  Busy() { pending_ = true; }
  bool pending() const noexcept override {
    ++asked_;
    return pending_;
  }
  bool advance_pending() noexcept override {
    asked_ = 0;
    return true;
  }
  void look_pending() noexcept override { asked_ = 0; }
  bool is_scanned() const noexcept { return asked_ == 2; }
  void end() { pending_ = false; }

 private:
  mutable int asked_ = 0;  // background thread only
};

/// Queues its operation right after the background thread, which is about to sleep, has found none.
/// The message that ends the operation arrives right after the next time that the background thread
/// advances it. It comes from a peer that rings the bell if a sleeper has been announced.
class Late final : public Fake {
 public:
  explicit Late(const Busy& before) : before_(before) {}
  void poked_by(Runtime& runtime) { runtime_ = &runtime; }

  bool pending() const noexcept override {
    const bool was = pending_;
    if (before_.is_scanned() && !queued_.exchange(true)) {
      pending_ = true;
      runtime_->poke();
    }
    return was;
  }
  bool advance_pending() noexcept override {
    if (message_is_here_) {
      pending_ = false;
      const std::lock_guard lock(mutex_);
      done_ = true;
      ended_.notify_all();
    } else {
      message_is_here_ = true;
      if (sleepers_.any()) bell_.ring();
    }
    return true;
  }
  bool ends_within(std::chrono::seconds limit) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, limit, [this] { return done_; });
  }

 private:
  const Busy& before_;
  Runtime* runtime_ = nullptr;
  mutable std::atomic<bool> queued_{false};
  bool message_is_here_ = false;  // background thread only
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;  // guarded by mutex_
};

TEST(Background, AnOperationThatIsQueuedWhileTheThreadGoesToSleepIsNotSleptOver) {
  Busy busy;
  Late late(busy);
  Runtime runtime{Config()};
  late.poked_by(runtime);
  runtime.add(busy);
  runtime.add(late);  // The background thread asks it after `busy`.
  EXPECT_TRUE(late.ends_within(10s)) << "the thread sleeps, and its peer sees nobody to ring for";
  busy.end();
  runtime.remove(late);
  runtime.remove(busy);
}

/// Another thread owns its engine when the background thread looks for the last time before it
/// sleeps, and leaves it without a poke.
class OwnedAtTheLastLook final : public Fake {
 public:
  OwnedAtTheLastLook() { pending_ = true; }
  bool advance_pending() noexcept override {
    const bool last_look = sleepers_.any();
    if (was_owned_ && !last_look) pending_ = false;
    was_owned_ = was_owned_ || last_look;
    return !last_look;
  }
  bool ends_within(std::chrono::seconds limit) const {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (pending_ && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(100us);
    return !pending_;
  }

 private:
  bool was_owned_ = false;  // background thread only
};

TEST(Background, AnEngineThatAnotherThreadOwnsAtTheLastLookIsNotSleptOver) {
  OwnedAtTheLastLook owned;
  Runtime runtime{Config()};
  runtime.add(owned);
  EXPECT_TRUE(owned.ends_within(10s)) << "the thread sleeps, and nobody has seen what is pending";
  runtime.remove(owned);
}

/// Has operations that the test's thread starts. They end when the background thread advances them,
/// or, if the thread waits for them, by that thread.
class Started final : public Fake {
 public:
  bool awaited() const noexcept override { return awaited_; }
  bool advance_pending() noexcept override {
    pending_ = false;
    pending_.notify_all();
    return true;
  }
  void start(Runtime& runtime) {
    pending_ = true;
    runtime.poke();
  }
  void wait_for_it() {
    awaited_ = true;
    pending_ = false;
    awaited_ = false;
  }
  void set_awaited(bool awaited) { awaited_ = awaited; }
  bool ends_within(std::chrono::seconds limit) const {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (pending_ && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(100us);
    return !pending_;
  }

 private:
  std::atomic<bool> awaited_{false};
};

// Makes the background thread nap: each wake turns out to have been needless.
void wake_needlessly(Started& started, Runtime& runtime) {
  for (int operation = 0; operation < 50; ++operation) {
    started.start(runtime);
    started.wait_for_it();
    std::this_thread::sleep_for(200us);
  }
}

TEST(Background, AThreadThatNapsAdvancesAnOperationForWhichNobodyWaits) {
  Started started;
  Runtime runtime{Config()};
  runtime.add(started);
  for (int round = 0; round < 5; ++round) {
    wake_needlessly(started, runtime);
    started.start(runtime);
    EXPECT_TRUE(started.ends_within(10s)) << "in round " << round;
  }
  runtime.remove(started);
}

TEST(Background, AThreadThatNapsAdvancesACommunicatorBesideOneThatIsAwaited) {
  Started awaited, alone;
  Runtime runtime{Config()};
  runtime.add(awaited);
  runtime.add(alone);
  wake_needlessly(awaited, runtime);
  awaited.set_awaited(true);
  alone.start(runtime);
  EXPECT_TRUE(alone.ends_within(10s));
  awaited.set_awaited(false);
  runtime.remove(alone);
  runtime.remove(awaited);
}

TEST(Background, AThreadThatNapsEndsWithItsRuntime) {
  Started started;
  Runtime runtime{Config()};
  runtime.add(started);
  wake_needlessly(started, runtime);
  runtime.remove(started);
}

constexpr Naps::Length kSleeps{0};

Naps napping() {
  Naps naps;
  for (int wake = 0; wake < 8; ++wake) naps.woken(false);
  return naps;
}

TEST(Naps, BeginAfterEightNeedlessWakesInARow) {
  Naps naps;
  for (int wake = 0; wake < 7; ++wake) naps.woken(false);
  naps.woken(true);
  for (int wake = 0; wake < 7; ++wake) naps.woken(false);
  EXPECT_EQ(naps.next(false, true), kSleeps);
  naps.woken(false);
  EXPECT_GT(naps.next(false, true), kSleeps);
}

TEST(Naps, EndWhenNothingHappensAndBeginAgainWithTheNextNeedlessWake) {
  Naps naps = napping();
  for (int busy = 0; busy < 100; ++busy) ASSERT_GT(naps.next(false, true), kSleeps);
  int idle = 0;
  while (naps.next(false, false) > kSleeps) ++idle;
  EXPECT_EQ(idle, 4);
  EXPECT_EQ(naps.next(false, false), kSleeps);
  naps.woken(false);
  EXPECT_GT(naps.next(false, true), kSleeps);
}

TEST(Naps, EndWhenNobodyWaitsForAnOperationAtTwoLooks) {
  Naps naps = napping();
  const auto first = naps.next(true, true);
  EXPECT_GT(first, kSleeps);
  EXPECT_LT(first, naps.next(false, true)) << "it looks again soon";
  EXPECT_GT(naps.next(true, false), kSleeps);
  EXPECT_EQ(naps.next(true, false), kSleeps);
  naps.woken(false);
  EXPECT_EQ(naps.next(false, true), kSleeps) << "only after eight needless wakes";
}

TEST(Naps, EndWhenFourLooksFindOperationsThoughTheProgramGoesOnToStartOthers) {
  Naps naps = napping();
  for (int look = 0; look < 3; ++look) EXPECT_GT(naps.next(true, true), kSleeps);
  EXPECT_EQ(naps.next(true, true), kSleeps);
}

}  // namespace
}  // namespace tutti::test
